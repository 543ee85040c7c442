package scenarios

import (
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
)

// randomPlan injects random faults, but the same ones for the same seed. Each kind of request has
// its own random numbers, because the order of different kinds depends on the operator.
type randomPlan struct {
	seed            uint64
	requests, event float64 // Probabilities of a fault.

	mu      sync.Mutex
	randoms map[string]*rand.Rand
}

func newRandomPlan(seed uint64, random *rand.Rand) *randomPlan {
	return &randomPlan{
		seed:     seed,
		requests: []float64{0, 0.05, 0.15, 0.3}[random.IntN(4)],
		event:    []float64{0, 0.02, 0.1}[random.IntN(3)],
		randoms:  map[string]*rand.Rand{},
	}
}

// draw calls a function with the random numbers of a kind of request.
func (p *randomPlan) draw(kind string, do func(*rand.Rand)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.randoms[kind] == nil {
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(kind))                               // A hash does not fail.
		p.randoms[kind] = rand.New(rand.NewPCG(p.seed, hash.Sum64())) //nolint:gosec // It must be reproducible.
	}
	do(p.randoms[kind])
}

// Request implements proxy.Plan.
func (p *randomPlan) Request(r proxy.Request) (fault proxy.Fault) {
	p.draw(r.Verb+" "+r.Resource, func(random *rand.Rand) {
		if random.Float64() >= p.requests {
			return
		}
		faults := []proxy.Fault{
			{Status: http.StatusTooManyRequests},
			{Status: http.StatusInternalServerError},
			{Status: http.StatusServiceUnavailable},
			{Status: http.StatusGatewayTimeout},
			{Reset: true},
			{Delay: time.Duration(random.IntN(500)) * time.Millisecond},
		}
		if r.IsWrite() {
			faults = append(faults, proxy.Fault{DropResponse: true}, proxy.Fault{DropResponse: true}, proxy.Fault{Status: http.StatusConflict})
		}
		fault = faults[random.IntN(len(faults))]
	})
	return fault
}

// Event implements proxy.Plan.
func (p *randomPlan) Event(r proxy.Request) (fault proxy.EventFault) {
	p.draw("event "+r.Resource, func(random *rand.Rand) {
		if random.Float64() < p.event {
			fault = []proxy.EventFault{proxy.Drop, proxy.Duplicate, proxy.CloseWatch, proxy.Expire}[random.IntN(4)]
		}
	})
	return fault
}
