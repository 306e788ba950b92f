package faultproxy

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// sleep waits for d to a tenth of a millisecond. time.Sleep rounds what is below
// a millisecond up to one in a process that has nothing else to do, because that
// is how exactly the runtime waits for its poller. A timer that is itself a file
// wakes the poller when it is due.
func sleep(d time.Duration) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		time.Sleep(d)
		return
	}
	timer := os.NewFile(uintptr(fd), "timer")
	defer timer.Close()
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, d.Nanoseconds()))}
	if err := unix.TimerfdSettime(fd, 0, &at, nil); err != nil {
		time.Sleep(d)
		return
	}
	var expirations [8]byte
	_, _ = timer.Read(expirations[:])
}
