-- census: counts the replicas that use a class.
--
-- KEYS  1 census: a sorted set of replicas, by when they are forgotten (ms)
-- ARGV  1 the replica that asks
--       2 ttl (ms): for how long it is counted from now on, 0 it leaves
-- Reply the number of replicas
--
-- Invariant: nobody is counted past its time, and the key expires with the last of them.

local now, ttl = now_ms(), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
if ttl > 0 then
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + ttl), ARGV[1])
  redis.call('PEXPIRE', KEYS[1], math.max(ttl, redis.call('PTTL', KEYS[1])))
else
  redis.call('ZREM', KEYS[1], ARGV[1])
end
return redis.call('ZCARD', KEYS[1])
