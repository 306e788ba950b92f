//go:build gubernator

package bench

import "github.com/leaselimit/leaselimit/bench/peer/gubernator"

func init() { inMemory = append(inMemory, gubernator.InProcess) }
