-- return: gives back tokens that were granted and not spent.
--
-- KEYS  1 bucket
-- ARGV  1-4 terms: capacity (tokens), rate (tokens per ms), budget (tokens), tau (ms)
--       5 waiters' tokens that no waiter spent
--       6 epoch (ms), 7 unspent, 8 spent: surplus of that epoch (tokens)
--       9 at (ms): the time of the grant that the waiters' tokens are of
-- Reply {credited}: surplus of a known epoch that was taken off what is out
--
-- Invariant: only surplus that is counted as out is credited, so a return that comes after its epoch mints no token. One that
-- comes twice would be credited against the leases of others: a return is sent at most once (R4). R1: the refill comes
-- first. A bucket that is not there is full and stays not there.

local now = now_ms()
local b = load(KEYS[1], now, terms(1))
if not b.exists then return { 0 } end
settle(b, tonumber(ARGV[6]), tonumber(ARGV[8]))
local unspent = settle(b, tonumber(ARGV[6]), tonumber(ARGV[7]))
-- What the bucket was refilled with since the grant may be in the place of the waiters' tokens (docs/adr/0005).
local waiters = math.max(0, tonumber(ARGV[5]) - math.max(0, now - tonumber(ARGV[9])) * b.rate)
credit(b, unspent + waiters)
if b.dirty then save(b) end
return { unspent }
