-- take: all of the charges or none, one trip, no lease. The keys are buckets of one tenant and so of one slot.
--
-- KEYS  1..n buckets; one that is named twice is charged the sum
-- ARGV  ten for each key: capacity (tokens), rate (tokens per ms), budget (tokens), tau (ms), cost (tokens),
--       owe: 1, the cost is of what was done already and is charged in any case, 0 it may be refused,
--       epoch (ms) and spent surplus (tokens) of two reports; 0 tokens says nothing
-- Reply {allowed, at, level1, retry1, .., leveln, retryn}
--       1 or 0; at in ms as text: the time of the take; levels in tokens as text; retry in ms as text: when that bucket's
--       cost could pass, 0 now, -1 never
--
-- Invariant: all are debited exactly their cost, or none is debited anything. What is owed takes a bucket into debt of one
-- capacity at most, and the rest is forgiven. R1: the refill comes first, under the old cap, then the reports, then the take.

local now = now_ms()
local charged, distinct, allowed = {}, {}, 1
for i, key in ipairs(KEYS) do
  local at = (i - 1) * 10
  local b = charged[key]
  if not b then
    b = load(key, now, terms(at + 1))
    b.cost, b.owe = 0, 0
    charged[key], distinct[#distinct + 1] = b, b
  end
  settle(b, tonumber(ARGV[at + 7]), tonumber(ARGV[at + 8]))
  settle(b, tonumber(ARGV[at + 9]), tonumber(ARGV[at + 10]))
  b.cost, b.owe = b.cost + tonumber(ARGV[at + 5]), math.max(b.owe, tonumber(ARGV[at + 6]))
end

for _, b in ipairs(distinct) do
  b.wait = 0
  if b.owe == 0 then b.wait = retry(b, b.cost) end
  if b.wait ~= 0 then allowed = 0 end
end

for _, b in ipairs(distinct) do
  if allowed == 1 then b.tokens = math.max(-b.capacity, b.tokens - b.cost) end
  if allowed == 1 or b.dirty then save(b) end
end

local reply = { allowed, float(now) }
for _, key in ipairs(KEYS) do
  reply[#reply + 1] = float(charged[key].tokens)
  reply[#reply + 1] = float(charged[key].wait)
end
return reply
