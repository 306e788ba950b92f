-- look: a bucket as it is stored, and the time.
--
-- KEYS  1 bucket
-- ARGV  none
-- Reply {TIME, type, PTTL, {field, value, ..}}; no fields unless it is a hash
--
-- Invariant: writes nothing.

local kind = redis.call('TYPE', KEYS[1]).ok
local fields = {}
if kind == 'hash' then fields = redis.call('HGETALL', KEYS[1]) end
return { redis.call('TIME'), kind, redis.call('PTTL', KEYS[1]), fields }
