// Package scripts holds the Lua scripts that keep the shared buckets in Redis, and with them the whole arithmetic of a
// bucket. Each file states its KEYS, ARGV, reply and invariant; bucket.lua states the layout of the hash.
//
// The scripts read the time from the server, touch no key but those in KEYS, and do a constant amount of work for each of
// them. They need Redis 5 or newer: TIME before a write needs the replication of effects.
package scripts

import _ "embed"

//go:embed bucket.lua
var bucket string

//go:embed acquire.lua
var acquire string

//go:embed take.lua
var take string

//go:embed return.lua
var give string

//go:embed peek.lua
var peek string

//go:embed reset.lua
var reset string

//go:embed census.lua
var census string

// The scripts as they are sent: each operation behind the common prelude.
var (
	Acquire = bucket + acquire
	Take    = bucket + take
	Return  = bucket + give
	Peek    = bucket + peek
	Reset   = bucket + reset
	Census  = bucket + census
)
