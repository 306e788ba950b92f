-- reset: fills a bucket up, under the terms that stand in it.
--
-- KEYS  1 bucket
-- ARGV  none
-- Reply 1 if there was something to reset, 0 if the bucket was not there (it is full)
--
-- Invariant: what is out stays counted, so tokens + out <= capacity + budget holds from now on. A key that is no hash, or
-- that says nothing of its terms and leases, is deleted.

local kind = redis.call('TYPE', KEYS[1])['ok']
if kind == 'none' then return 0 end
if kind == 'hash' then
  local capacity = finite(redis.call('HGET', KEYS[1], 'capacity'))
  if capacity and capacity >= 0 then
    local f = redis.call('HMGET', KEYS[1], 'rate', 'budget', 'tau')
    local b = load(KEYS[1], now_ms(), {
      at = 1, capacity = capacity, rate = field(f[1], 0, 0), budget = field(f[2], 0, 0), tau = field(f[3], 0, 0),
    })
    if out(b) > 0 then
      b.tokens = math.max(0, cap(b))
      save(b)
      return 1
    end
  end
end
redis.call('DEL', KEYS[1])
return 1
