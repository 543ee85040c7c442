package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// churn is how an operator fares whose Echoes change all the time.
type churn struct {
	// converged is what 99 of 100 changes took at most, from the request that made them.
	converged time.Duration
	// queued is a bound of what 99 of 100 Echoes waited in the queue: metrics are that coarse.
	queued time.Duration
}

// churnFor makes so many changes in a second to the messages of n Echoes, one after the other,
// for some time.
func (s *server) churnFor(ctx context.Context, n, pace int, howLong time.Duration) (c churn, err error) {
	port, err := controlplane.FreePort()
	if err != nil {
		return c, err
	}
	namespace, echoes, operator, err := s.startOn(ctx, n, "--metrics-bind-address=127.0.0.1:"+port)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, operator.Terminate(), s.clear(ctx, namespace)) }()
	scraper, err := s.newScraper(ctx, namespace, port)
	if err != nil {
		return c, err
	}
	before, err := scraper.queueDuration(ctx)
	if err != nil {
		return c, err
	}
	took, err := s.change(ctx, namespace, echoes, pace, howLong)
	if err != nil {
		return c, err
	}
	after, err := scraper.queueDuration(ctx)
	if err != nil {
		return c, err
	}
	slices.Sort(took)
	return churn{converged: took[len(took)*99/100], queued: quantile(before, after, 0.99)}, nil
}

// change changes the Echoes in turn, and returns how long each change took to converge.
func (s *server) change(ctx context.Context, namespace string, echoes []*echov1.Echo, pace int, howLong time.Duration) ([]time.Duration, error) {
	ctx, stop := context.WithTimeout(ctx, howLong+timeout)
	defer stop()
	watch, err := s.watch(ctx, namespace)
	if err != nil {
		return nil, err
	}
	log := newChangeLog()
	go log.follow(watch)
	defer watch.Stop()

	group, changing := errgroup.WithContext(ctx)
	tick := time.NewTicker(time.Second / time.Duration(pace))
	defer tick.Stop()
	for i := range pace * int(howLong.Seconds()) {
		select {
		case <-changing.Done():
			return nil, errors.Join(group.Wait(), changing.Err())
		case <-tick.C:
		}
		group.Go(func() error {
			echo := &echov1.Echo{ObjectMeta: *echoes[i%len(echoes)].ObjectMeta.DeepCopy()}
			echo.ResourceVersion = ""
			begin := time.Now()
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"message":"change %d"}}`, i))
			if err := s.plane.Client.Patch(changing, echo, patch); err != nil {
				return err
			}
			log.changed(echo, begin)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return log.wait(ctx)
}

// watch watches the Echoes of a namespace, anew where a loaded API server ends the watch.
func (s *server) watch(ctx context.Context, namespace string) (watch.Interface, error) {
	var echoes echov1.EchoList
	if err := s.plane.Client.List(ctx, &echoes, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	return watchtools.NewRetryWatcherWithContext(ctx, echoes.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return s.plane.Client.Watch(ctx, &echov1.EchoList{}, client.InNamespace(namespace), &client.ListOptions{Raw: &options})
		},
	})
}

// changeLog notes when Echoes were changed, and when their statuses spoke of it.
type changeLog struct {
	mu              sync.Mutex
	begun, observed map[version]time.Time
}

// version is one spec of an Echo.
type version struct {
	name       string
	generation int64
}

func newChangeLog() *changeLog {
	return &changeLog{begun: map[version]time.Time{}, observed: map[version]time.Time{}}
}

func (l *changeLog) changed(echo *echov1.Echo, begin time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun[version{echo.Name, echo.Generation}] = begin
}

// follow notes every status until the watch ends.
func (l *changeLog) follow(w watch.Interface) {
	for event := range w.ResultChan() {
		echo, is := event.Object.(*echov1.Echo)
		if !is {
			continue
		}
		now, seen := time.Now(), version{echo.Name, echo.Status.ObservedGeneration}
		l.mu.Lock()
		if _, known := l.observed[seen]; !known {
			l.observed[seen] = now
		}
		l.mu.Unlock()
	}
}

// wait waits until every change has been observed, and returns how long each took. A change
// that was overtaken by the next of the same Echo took as long as that.
func (l *changeLog) wait(ctx context.Context) (took []time.Duration, err error) {
	missing := 0
	err = wait.PollUntilContextCancel(ctx, time.Second, true, func(context.Context) (bool, error) {
		took, missing = l.took()
		return missing == 0, nil
	})
	if err != nil {
		return nil, fmt.Errorf("%d changes have not converged: %w", missing, err)
	}
	return took, nil
}

func (l *changeLog) took() (took []time.Duration, missing int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for change, begin := range l.begun {
		for {
			if observed, is := l.observed[change]; is {
				took = append(took, observed.Sub(begin))
				break
			}
			change.generation++
			if _, overtaken := l.begun[change]; !overtaken {
				missing++
				break
			}
		}
	}
	return took, missing
}

// scraper reads the operator's metrics.
type scraper struct {
	client     *http.Client
	url, token string
}

// newScraper makes one of that name that the API server knows, and lets read metrics.
func (s *server) newScraper(ctx context.Context, name, port string) (*scraper, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: account.Name},
		Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	}
	token := &authenticationv1.TokenRequest{}
	if err := errors.Join(s.plane.Client.Create(ctx, account), s.plane.Client.Create(ctx, role), s.plane.Client.Create(ctx, binding)); err != nil {
		return nil, err
	}
	if err := s.plane.Client.SubResource("token").Create(ctx, account, token); err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // Its certificate is its own.
	return &scraper{client: &http.Client{Transport: transport}, url: "https://127.0.0.1:" + port + "/metrics", token: token.Status.Token}, nil
}

// queueDuration reads how long Echoes have waited in the queue since the operator's start.
func (s *scraper) queueDuration(ctx context.Context) (*dto.Histogram, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // It was read.
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the operator's metrics: %s", response.Status)
	}
	families, err := parseMetrics(response.Body)
	if err != nil {
		return nil, err
	}
	for _, metric := range families["workqueue_queue_duration_seconds"].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "name" && label.GetValue() == "echo" {
				return metric.GetHistogram(), nil
			}
		}
	}
	return nil, errors.New("the operator's metrics have no workqueue_queue_duration_seconds of its queue")
}

func parseMetrics(text io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(text)
}

// quantile returns the least bound that at least this share of what came between two scrapes
// is within.
func quantile(before, after *dto.Histogram, share float64) time.Duration {
	all := float64(after.GetSampleCount() - before.GetSampleCount())
	for i, bucket := range after.GetBucket() {
		if float64(bucket.GetCumulativeCount()-before.GetBucket()[i].GetCumulativeCount()) >= share*all {
			return time.Duration(bucket.GetUpperBound() * float64(time.Second))
		}
	}
	return math.MaxInt64
}
