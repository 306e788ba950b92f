package demo

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// traffic is a kind of traffic: when calls are due, and at which replica.
type traffic struct {
	words string
	load  float64 // average, of what the limit refills
	fill  func(p *plan)
}

var traffics = map[string]*traffic{
	"steady": {
		words: "0.9 times the limit, spread evenly over the replicas",
		load:  0.9,
		fill:  func(p *plan) { p.poisson(0.9, p.anybody) },
	},
	"burst": {
		words: "idle, then bursts of 0.9 of the capacity",
		load:  0.9 / burstPause,
		fill:  func(p *plan) { p.bursts() },
	},
	"overload": {
		words: "5 times the limit, spread evenly over the replicas",
		load:  5,
		fill:  func(p *plan) { p.poisson(5, p.anybody) },
	},
	"skewed": {
		words: "0.9 times the limit, 80% of it at one replica",
		load:  0.9,
		fill:  func(p *plan) { p.poisson(0.9, p.mostlyFirst) },
	},
}

var trafficOrder = []string{"steady", "burst", "overload", "skewed"}

func trafficNames() string { return strings.Join(trafficOrder, ", ") }

func trafficUsage() string {
	var b strings.Builder
	for _, name := range trafficOrder {
		b.WriteString(name + ": " + traffics[name].words + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

const (
	burstSize  = 0.9  // of the capacity
	burstPause = 1.25 // from one burst to the next: of the time in which its tokens are refilled
	burstRate  = 20_000
)

// rate is the limit in calls a second, by which loads are measured. Without a refill it is what drains the bucket.
func (s *settings) rate() float64 {
	if s.limit.Refill > 0 {
		return float64(s.limit.Refill)
	}
	return float64(s.limit.Capacity) / s.duration.Seconds()
}

// expected is about how many calls there will be.
func (s *settings) expected() float64 {
	n := traffics[s.traffic].load * s.rate() * s.duration.Seconds()
	if s.traffic == "burst" {
		n += burstSize * float64(s.limit.Capacity)
	}
	return n
}

// A plan says when calls are due, in nanoseconds after the start: for each replica, in order.
type plan struct {
	*settings
	random *rand.Rand
	due    [][]int64
}

// newPlan makes the plan of a run. It depends on the settings and their seed alone.
func newPlan(s *settings) [][]int64 {
	p := &plan{settings: s, random: rand.New(rand.NewPCG(s.seed, 0)), due: make([][]int64, s.replicas)}
	traffics[s.traffic].fill(p)
	for _, due := range p.due {
		slices.Sort(due)
	}
	return p.due
}

func (p *plan) anybody() int { return p.random.IntN(p.replicas) }

func (p *plan) mostlyFirst() int {
	if p.replicas == 1 || p.random.Float64() < 0.8 {
		return 0
	}
	return 1 + p.random.IntN(p.replicas-1)
}

func (p *plan) add(replica int, seconds float64) {
	if at := time.Duration(seconds * float64(time.Second)); at < p.duration {
		p.due[replica] = append(p.due[replica], int64(at))
	}
}

// poisson makes calls that come independently of each other, load times the limit on average.
func (p *plan) poisson(load float64, replica func() int) {
	rate, end := load*p.rate(), p.duration.Seconds()
	for at := p.random.ExpFloat64() / rate; at < end; at += p.random.ExpFloat64() / rate {
		p.add(replica(), at)
	}
}

// bursts makes nothing but bursts over all replicas, each of them within a moment, which is as long as the driver needs.
func (p *plan) bursts() {
	size := max(1, int(burstSize*float64(p.limit.Capacity)))
	end := p.duration.Seconds()
	period := burstPause * float64(size) / p.rate()
	width := min(period/2, max(0.02, float64(size)/burstRate))
	for at := min(period, end) / 4; at < end; at += period {
		for range size {
			p.add(p.anybody(), at+p.random.Float64()*width)
		}
	}
}
