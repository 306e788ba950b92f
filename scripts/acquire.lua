-- acquire: tokens for the callers that wait, and a lease for later.
--
-- KEYS  1 bucket
-- ARGV  1-4 terms: capacity (tokens), rate (tokens per ms), budget (tokens), tau (ms)
--       5 share (tokens): most surplus out over all replicas
--       6 min, 7 need, 8 want (tokens)
--       9 horizon (ms): above 0, the surplus may be future-dated by as much
--       10 replicas, 0 if unknown
--       11 held (tokens): surplus that the asker has in hand
--       12, 13 and 14, 15 epoch (ms) and spent surplus (tokens) of two reports; 0 tokens says nothing
-- Reply {waiters, surplus, ready, next, first, spacing, level, retry, epoch, at}
--       waiters, surplus, ready, next in tokens: ready of the surplus may be spent at once, the next ones become ready
--       together first ms after the answer, each further one spacing ms later (both as text, 0 where nothing is to come);
--       level in tokens as text; retry in ms as text: when min could pass, 0 it did, -1 never; epoch in ms; at in ms as
--       text: the time of the grant
--
-- Invariant: what is debited is an integer and exactly what is granted. R1: the refill comes first, under the old cap, then
-- the reports, then the grant. A refusal changes nothing that it does not have to. What asks for nothing is a probe: it writes
-- the bucket as it is, so that a server that cannot write says so.

local now = now_ms()
local b = load(KEYS[1], now, terms(1))
settle(b, tonumber(ARGV[12]), tonumber(ARGV[13]))
settle(b, tonumber(ARGV[14]), tonumber(ARGV[15]))

local share, min, need, want = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local horizon, replicas, held = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
if replicas < 1 then replicas = 4 end

local waiters = math.min(need, math.max(0, spendable(b)))
if waiters < min then waiters = 0 end
b.tokens = b.tokens - waiters
local wait = 0
if waiters == 0 and min > 0 then wait = retry(b, min) end

-- What may be out without holding the refill below one token: with less nobody could pass before the lease is reported.
local room = math.min(b.capacity, b.capacity + b.budget - 1) - out(b)

local surplus, ready, next, first, spacing = 0, 0, 0, 0, 0
if horizon > 0 and b.rate > 0 then
  -- Pressed: into debt by what is refilled within the horizon, out of all that is not out.
  local most = math.floor(b.tokens + EPSILON + b.rate * horizon)
  surplus = math.max(0, math.min(want, math.floor(room), most))
  if surplus > 0 then
    -- An ideal bucket makes the k-th token at (k - level)/rate, and keeps the first few for a call that costs min.
    ready = math.min(surplus, math.max(0, spendable(b)))
    if waiters == 0 and ready < min then ready = 0 end
    if ready < surplus then
      local k = ready + 1
      if waiters == 0 then k = math.max(k, min) end
      next = math.min(surplus, k) - ready
      first = math.max(0, (k - b.tokens) / b.rate)
      spacing = 1 / b.rate
      if first >= tonumber(ARGV[4]) then -- the lease would be over: what there is stays for a cheaper call
        surplus, ready, next, first, spacing = 0, 0, 0, 0, 0
      end
    end
  end
elseif want > 0 and wait == 0 then
  local free = math.min(share - out(b), room)
  if free >= 1 then
    local most = math.floor(free / math.min(4, replicas))
    if held < 1 then most = math.max(1, most) end
    surplus = math.max(0, math.min(want, most, spendable(b)))
    ready = surplus
  end
end
b.tokens = b.tokens - surplus
b.cur = b.cur + surplus

if waiters > 0 or surplus > 0 or b.dirty or (need == 0 and want == 0) then save(b) end
return { waiters, surplus, ready, next, float(first), float(spacing), float(b.tokens), float(wait), b.epoch, float(now) }
