-- peek: reads a bucket as it would be for a draw now.
--
-- KEYS  1 bucket
-- ARGV  1-4 terms: capacity (tokens), rate (tokens per ms), budget (tokens), tau (ms)
-- Reply {exists, level, out, retry}
--       1 or 0; level in tokens as text; surplus out (tokens); ms as text until a cost of 1 could pass, 0 now, -1 never
--
-- Invariant: writes nothing.

local b = load(KEYS[1], now_ms(), terms(1))
return { b.exists and 1 or 0, float(b.tokens), out(b), float(retry(b, 1)) }
