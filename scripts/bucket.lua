-- bucket.lua: the prelude that every script is composed with. The arithmetic of a shared bucket is written here, once.
--
-- A bucket is a hash:
--   tokens       float, what the bucket held at last_refill; below 0 is debt
--   last_refill  whole ms of Redis TIME
--   rate         tokens per ms \
--   capacity     tokens         > the terms in force since last_refill
--   budget       tokens        /
--   epoch, tau   ms: start and length of the current epoch; the epoch's start is its name
--   out_cur      surplus granted in this epoch, less what was reported or returned
--   out_prev     the same of the epoch before
-- A plain token-bucket script of another language keeps the first two only. Fields that are not there mean: nothing leased,
-- and the asker's terms.
--
-- Invariant, for every bucket and at every moment: tokens <= capacity, and tokens + out <= capacity + budget. Surplus that
-- a replica still holds is part of out. A refill stops at min(capacity, capacity + budget - out), a grant moves tokens to
-- out, and everything else only takes away.
--
-- All arithmetic is in float64 and in the order of membucket's Go code, which must give the same numbers to the bit.

local EPSILON = 1e-9              -- a deficit below this is none
local MAX_TTL = 400 * 86400000    -- ms: the longest a key lives
local STILL_TTL = 30 * 86400000   -- ms: a bucket without refill, after its last use
local NEVER = -1                  -- the wire's word for a retry-after that never comes

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + t[2] / 1000
end

-- A finite number, or nil: absent, not a number, NaN and infinity are the same fault. The last two less themselves are not 0.
local function finite(v)
  v = v and tonumber(v)
  if v and v - v == 0 then return v end
end

-- What stands in the place of a field: absent is absent; a number below 0, or none at all, is broken.
local function field(v, absent, broken)
  if not v then return absent end
  v = finite(v)
  if not v or v < 0 then return broken end
  return v
end

local function out(b) return b.cur + b.prev end

local function cap(b)
  return math.min(b.capacity, b.capacity + b.budget - b.cur - b.prev)
end

local function fill(b, to)
  if to <= b.last then return end
  local top = cap(b)
  if b.tokens < top then
    b.tokens = math.min(top, b.tokens + (to - b.last) * b.rate)
  end
  b.last = to
end

-- The four terms in ARGV from position i: capacity, rate (tokens per ms), budget, tau (ms).
local function terms(i)
  return {
    at = i, capacity = tonumber(ARGV[i]), rate = tonumber(ARGV[i + 1]),
    budget = tonumber(ARGV[i + 2]), tau = tonumber(ARGV[i + 3]),
  }
end

-- The bucket under key as it is at now: refilled under the stored terms, its epochs rotated, then under terms t.
-- b.dirty: something of this must be stored even if nothing is taken. b.same: the stored terms need not be.
local function load(key, now, t)
  local f = redis.call('HMGET', key, 'tokens', 'last_refill', 'rate', 'capacity', 'budget',
    'epoch', 'tau', 'out_cur', 'out_prev')
  -- Mostly the stored terms are the asker's to the letter. Then they are neither parsed nor stored again.
  local same = f[4] == ARGV[t.at] and f[3] == ARGV[t.at + 1] and f[5] == ARGV[t.at + 2] and f[7] == ARGV[t.at + 3]
  local exists = same
  for i = 1, 9 do exists = exists or f[i] ~= false end

  local rate, capacity, budget, tau = t.rate, t.capacity, t.budget, t.tau
  if not same then
    rate, capacity = field(f[3], rate, rate), field(f[4], capacity, capacity)
    budget, tau = field(f[5], budget, budget), field(f[7], tau, tau)
  end
  -- Half-written state is repaired without a gift: no tokens where their number is lost, no elapsed time where its start is, or
  -- where the clock was set back, and nothing stalls.
  local tokens, last = finite(f[1]), finite(f[2])
  local b = {
    key = key, exists = exists, same = same, dirty = exists and not (tokens and last and last <= now),
    rate = rate, capacity = capacity, budget = budget, tau = tau,
    tokens = tokens or (exists and 0 or capacity), last = last and last <= now and last or now,
    -- Broken counts of what is out: as much as can be out. They age like any other.
    epoch = finite(f[6]), cur = field(f[8], 0, capacity), prev = field(f[9], 0, capacity),
  }
  -- An epoch that gets another name takes along what is out of the one before, whose name would be another epoch's then.
  if not b.epoch or b.epoch > now then
    b.epoch, b.cur, b.prev = math.floor(now), b.cur + b.prev, 0
  end

  -- R2: across an epoch's border piecewise, each piece under the cap of its own time. After two nothing is out.
  for _ = 1, 2 do
    if out(b) > 0 and now >= b.epoch + b.tau then
      fill(b, b.epoch + b.tau)
      b.epoch, b.prev, b.cur = b.epoch + b.tau, b.cur, 0
    end
  end
  fill(b, now)

  -- Now the asker's terms take over. A raise gives nothing; a cut takes what is above, and debt beyond a whole bucket.
  b.dirty = b.dirty or b.rate ~= t.rate or b.capacity ~= t.capacity or b.budget ~= t.budget
  b.rate, b.capacity, b.budget = t.rate, t.capacity, t.budget
  if out(b) <= 0 then
    b.epoch, b.tau = math.floor(now), t.tau
  elseif t.tau > b.tau then            -- whoever holds a lease longest rules
    b.tau, b.cur, b.prev = t.tau, b.cur + b.prev, 0
  end
  local kept = math.max(-b.capacity, math.min(b.tokens, math.max(0, cap(b))))
  if kept ~= b.tokens then
    b.tokens, b.dirty = kept, true
  end
  return b
end

-- R3: takes n off what is out of an epoch, never below 0; an epoch that is neither this nor the last is ignored. Gives what
-- was taken off.
local function settle(b, epoch, n)
  if n <= 0 then return 0 end
  local taken = 0
  if epoch == b.epoch then
    taken = math.min(b.cur, n)
    b.cur = b.cur - taken
  elseif epoch == b.epoch - b.tau then
    taken = math.min(b.prev, n)
    b.prev = b.prev - taken
  end
  b.dirty = b.dirty or taken > 0
  return taken
end

-- Gives n tokens back, up to the cap.
local function credit(b, n)
  local top = cap(b)
  if n > 0 and b.tokens < top then
    b.tokens = math.min(top, b.tokens + n)
    b.dirty = true
  end
end

local function spendable(b) return math.floor(b.tokens + EPSILON) end

-- Ms until cost could pass if nobody else took anything and no lease came back; NEVER if it cannot.
local function retry(b, cost)
  if b.tokens + EPSILON >= cost then return 0 end
  if cost > b.capacity or b.rate <= 0 then return NEVER end
  -- What is out holds the cap down until it ages out, so go over the borders as load does.
  local at, tokens, cur, prev, epoch = b.last, b.tokens, b.cur, b.prev, b.epoch
  while cur + prev > 0 do
    local top = math.min(b.capacity, b.capacity + b.budget - cur - prev)
    if cost <= top then break end
    local border = epoch + b.tau
    if tokens < top then tokens = math.min(top, tokens + (border - at) * b.rate) end
    at, epoch, prev, cur = border, border, cur, 0
  end
  return at - b.last + math.max(0, cost - tokens) / b.rate
end

-- Long enough that the bucket is full and nothing is out when the key goes; never 0, which would delete it at once.
local function ttl(b)
  if b.rate <= 0 then return STILL_TTL end
  local full = (b.capacity - b.tokens) / b.rate + 2 * b.tau + 1000
  return math.max(1, math.min(MAX_TTL, math.ceil(full)))
end

-- What is stored is the bucket as of the last whole ms, less the refill since. A plain script, which knows whole ms only,
-- would put a broken last_refill back to the whole one, and what was added since would be added again: of 100 tokens a ms,
-- both drawing 10 in turn every 50 us, 40,000 passed in place of 21,000.
local function save(b)
  local whole = math.floor(b.last)
  local tokens = b.tokens - (b.last - whole) * b.rate
  if b.same then
    redis.call('HSET', b.key, 'tokens', tokens, 'last_refill', whole, 'epoch', b.epoch, 'out_cur', b.cur, 'out_prev', b.prev)
  else
    redis.call('HSET', b.key, 'tokens', tokens, 'last_refill', whole, 'epoch', b.epoch, 'out_cur', b.cur, 'out_prev', b.prev,
      'rate', b.rate, 'capacity', b.capacity, 'budget', b.budget, 'tau', b.tau)
  end
  redis.call('PEXPIRE', b.key, ttl(b))
end

-- A float for a reply: Redis would cut a number down to its integer.
local function float(v)
  if v == 0 then return '0' end
  return string.format('%.17g', v)
end

