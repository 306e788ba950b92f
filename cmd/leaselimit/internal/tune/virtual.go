package tune

import (
	"flag"
	"sync"
	"testing"
	"testing/synctest"
)

// virtual runs f in a bubble of testing/synctest, where time passes when all goroutines wait, and only then. f must leave no
// goroutine behind. It may be called by many at once; each has a time of its own.
//
// The alternatives lost: a clock handed to every package of the library for the sake of this command; sweeps in real time, which
// take a minute for what takes a second and measure how busy the machine is.
func virtual(f func()) {
	synctest.Test(theTest(), func(*testing.T) { f() })
}

// theTest is a test that never ends. A bubble has to belong to one, and testing.Main makes one in any program: it is there for
// those who do the work of "go test" themselves. It would end the process after the test.
var theTest = sync.OnceValue(func() *testing.T {
	_ = flag.CommandLine.Parse(nil) // or Main would parse the arguments of the program
	got := make(chan *testing.T)
	all := func(string, string) (bool, error) { return true, nil }
	go testing.Main(all, []testing.InternalTest{{Name: "tune", F: func(t *testing.T) {
		got <- t
		select {}
	}}}, nil, nil)
	return <-got
})
