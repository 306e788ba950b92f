-- A token bucket as services in other languages have it, to share buckets with: it knows whole ms and two fields.
--
-- KEYS  1 bucket
-- ARGV  1 capacity, 2 rate (tokens per ms), 3 cost
-- Reply {allowed, tokens, wait in ms}

local capacity, rate, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local state = redis.call('HMGET', KEYS[1], 'tokens', 'last_refill')
local tokens = tonumber(state[1] or capacity)
local last = tonumber(state[2] or now)
tokens = math.min(capacity, tokens + math.max(0, now - last) * rate)

local allowed, wait = 0, 0
if tokens >= cost then
  tokens, allowed = tokens - cost, 1
else
  wait = math.ceil((cost - tokens) / rate)
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'last_refill', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(capacity / rate) + 1000)
return { allowed, math.floor(tokens), wait }
