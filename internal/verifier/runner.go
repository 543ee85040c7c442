package verifier

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Runner repeats rounds, and serves their state to the kubelet and their metrics to Prometheus.
type Runner struct {
	target *Target
	period time.Duration
	state  State
	log    *slog.Logger

	// The kubelet's probes read the state while a round runs.
	known, verified atomic.Bool

	registry    *prometheus.Registry
	requests    *prometheus.CounterVec
	duration    prometheus.Histogram
	lastSuccess prometheus.Gauge
}

// NewRunner returns a Runner that verifies the target once in a period. The verification fails after
// threshold consecutive failed rounds.
func NewRunner(target *Target, period time.Duration, threshold int, log *slog.Logger) *Runner {
	r := &Runner{
		target: target, period: period, state: State{Threshold: threshold}, log: log, registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "echo_verify_rounds_total",
			Help: "Number of verification rounds, by layer and result.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "echo_verify_round_duration_seconds",
			Help:    "Time that a verification round takes, by layer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		lastSuccess: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "echo_verify_last_success_timestamp_seconds",
			Help: "Unix time of the last successful verification round, by layer. 0 if there was none.",
		}),
	}
	labeled := prometheus.WrapRegistererWith(prometheus.Labels{"layer": string(target.Layer)}, r.registry)
	labeled.MustRegister(r.requests, r.duration, r.lastSuccess)
	for _, result := range Results {
		r.requests.WithLabelValues(string(result))
	}
	return r
}

// Run repeats rounds until the context is done.
func (r *Runner) Run(ctx context.Context) {
	for ctx.Err() == nil {
		r.round(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(jittered(r.period)):
		}
	}
}

// jittered varies a period by a tenth, so that verifiers on many nodes do not stay in step.
func jittered(period time.Duration) time.Duration {
	return period*9/10 + rand.N(period/5+1) //nolint:gosec // It protects no secret.
}

func (r *Runner) round(ctx context.Context) {
	start := time.Now()
	result := r.target.Round(ctx)
	if ctx.Err() != nil {
		return // The verifier is shutting down, so the result is not the server's.
	}
	took := time.Since(start)
	r.requests.WithLabelValues(string(result)).Inc()
	r.duration.Observe(took.Seconds())
	if result == OK {
		r.lastSuccess.SetToCurrentTime()
	}
	changed := r.state.Add(result)
	r.verified.Store(r.state.Verified)
	r.known.Store(r.state.Known)
	log := r.log.With("layer", r.target.Layer, "result", result, "duration", took.Round(time.Microsecond).String())
	switch {
	case changed && r.state.Verified:
		log.Info("verified the response")
	case changed:
		log.Warn("could not verify the response", "url", r.target.URL.Redacted())
	case result != OK:
		log.Warn("a verification round failed")
	}
}

// Metrics returns the metrics of the rounds.
func (r *Runner) Metrics() prometheus.Gatherer { return r.registry }

// Handler serves the probes /startz, which succeeds as soon as the state is known, and /readyz,
// which succeeds if the response is verified, and /metrics.
func (r *Runner) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /startz", response(&r.known))
	mux.HandleFunc("GET /readyz", response(&r.verified))
	mux.Handle("GET /metrics", promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{}))
	return mux
}

func response(value *atomic.Bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if !value.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
}
