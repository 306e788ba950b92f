-- take: all of the charges or none, one trip, no lease. The keys are buckets of one tenant and so of one slot.
--
-- KEYS  1..n buckets; one that is named twice is charged the sum
-- ARGV  five for each key: capacity (tokens), rate (tokens per ms), budget (tokens), tau (ms), cost (tokens)
-- Reply {allowed, level1, retry1, .., leveln, retryn}
--       1 or 0; levels in tokens as text; retry in ms as text: when that bucket's cost could pass, 0 now, -1 never
--
-- Invariant: all are debited exactly their cost, or none is debited anything.

local now = now_ms()
local charged, distinct, allowed = {}, {}, 1
for i, key in ipairs(KEYS) do
  local at = (i - 1) * 5
  local b = charged[key]
  if not b then
    b = load(key, now, terms(at + 1))
    b.cost = 0
    charged[key], distinct[#distinct + 1] = b, b
  end
  b.cost = b.cost + tonumber(ARGV[at + 5])
  if b.tokens + EPSILON < b.cost then allowed = 0 end
end

for _, b in ipairs(distinct) do
  b.wait = retry(b, b.cost)
  if allowed == 1 then b.tokens = b.tokens - b.cost end
  if allowed == 1 or b.dirty then save(b) end
end

local reply = { allowed }
for _, key in ipairs(KEYS) do
  reply[#reply + 1] = float(charged[key].tokens)
  reply[#reply + 1] = float(charged[key].wait)
end
return reply
