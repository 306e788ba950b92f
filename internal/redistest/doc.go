// Package redistest gives tests real Redis servers: one alone, one shared by
// the whole test process, a Cluster, and a Sentinel group.
//
// A server program is looked for in this order:
//
//  1. redis-server and redis-cli on PATH;
//  2. Docker, with the image named by LEASELIMIT_REDIS_IMAGE (default
//     redis:7.4; it needs redis-server and redis-cli and nothing else, not even
//     a shell). It is pulled if it is missing. Servers use the host's network.
//
// Where neither is there the test fails; it is never skipped, because a suite
// that is green without having met a Redis says nothing. REDIS_ADDR names a
// running server for [Addr] alone: nobody may kill, pause or join that one.
// provision.sh in this folder fetches what is missing, image.sh builds a Docker
// image where there is no registry.
//
// # What is promised
//
//   - A function that returns a server has seen that very server answer PING
//     (not its log, and not a stranger on the same port).
//   - Servers end with the test that started them, whatever state they are in.
//     They also end when the test process is killed: at once on Linux, within
//     seconds in Docker, not at all for a program from PATH on other systems.
//     Their folders (redistest-* among the temporary files) then stay behind.
//   - Test processes that run at the same time do not take each other's ports,
//     nor the port of a server that is between Stop and Restart.
//   - Nothing is persisted, unless [WithConfig] says so. A server's folder
//     outlives Stop and Restart, and goes with the test.
//
// # What is not
//
//   - Methods report trouble through the test that started the server, with
//     Fatalf: call them from that test's goroutine.
//   - Every running server holds one goroutine. [Main] checks for leaks after
//     the last server is gone; a test that checks for itself while servers run
//     passes [IgnoreServers].
package redistest
