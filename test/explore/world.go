// Package explore runs the operator's reconciler against a small model of a cluster in memory, in every order of events up
// to a bound: edits of the user, steps of controllers, watches that lag, writes that are rejected or whose response is lost,
// crashes.
package explore

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/controller"
)

// Every Echo has this name.
const (
	namespace = "default"
	echoName  = "hello"
)

// epoch is the time in which testing/synctest starts.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// key identifies an object.
type key struct{ kind, name string }

func (k key) String() string { return k.kind + " " + k.name }

var echoKey = key{"Echo", echoName}

// item is an object in one version. It is never changed, so worlds share it.
type item struct {
	client.Object
	description
}

func newItem(object client.Object) *item {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // Every type of the API can be encoded.
	}
	return &item{object, newDescription(string(text))}
}

// description is a text whose versions and UIDs are apart, because worlds that are alike differ in them.
type description struct {
	text       string
	identities []string
}

// Versions and UIDs each have one length, so that their order is that of their texts.
const firstVersion = 1_000_000_000

var identities = regexp.MustCompile(`\b(1\d{9}|uid-\d{4})\b`)

func newDescription(text string) (d description) {
	var rest strings.Builder
	end := 0
	for _, found := range identities.FindAllStringIndex(text, -1) {
		rest.WriteString(text[end:found[0]])
		d.identities = append(d.identities, text[found[0]:found[1]])
		end = found[1]
	}
	rest.WriteString(text[end:])
	d.text = rest.String()
	return d
}

// change is what a watch reports about one write. old or new is nil for an object that was created or deleted.
type change struct {
	key      key
	old, new *item
}

// world is one state of the cluster and of the operator.
type world struct {
	now      time.Duration // since the epoch
	version  int64         // resourceVersion of the last write
	uids     int
	objects  map[key]*item
	cached   map[key]*item
	withheld []change // what the operator's cache lacks
	held     string   // the kind whose changes do not reach the cache
	heldFrom time.Duration

	operator *controller.EchoReconciler
	queued   bool          // the Echo is in the queue of the controller
	again    time.Duration // when it comes back, or never
	failures int           // in a row

	next int // operation of the user
	left budget
	// edits are the changes of the Echo since the last one of its spec.
	edits []change
	// specs are the specs of the Echo by generation, since its creation.
	specs map[int64]echov1.EchoSpec

	trail    *step
	findings []string
}

const never = time.Duration(-1)

// budget is how often something may still happen.
type budget struct{ lags, faults, crashes int }

// step is how a world came about.
type step struct {
	name   string
	before *step
}

func (s *step) story() (all []string) {
	for ; s != nil; s = s.before {
		all = append(all, s.name)
	}
	slices.Reverse(all)
	return all
}

// clone returns a copy. What maps hold is shared, because it is never changed. The operator is copied when it runs.
func (w *world) clone() *world {
	c := *w
	c.objects, c.cached = maps.Clone(w.objects), maps.Clone(w.cached)
	c.specs = maps.Clone(w.specs)
	return &c
}

func (w *world) finding(format string, args ...any) {
	w.findings = append(slices.Clone(w.findings), fmt.Sprintf(format, args...))
}

func (w *world) time() time.Time { return epoch.Add(w.now) }

func get[T client.Object](w *world, k key) (object T, found bool) {
	if i := w.objects[k]; i != nil {
		return i.Object.(T), true //nolint:forcetypeassert // The key has the kind.
	}
	return object, false
}

func (w *world) echo() (*echov1.Echo, bool) { return get[*echov1.Echo](w, echoKey) }

// sorted returns the keys of a kind, or of all kinds, in order.
func sorted(objects map[key]*item, kind string) []key {
	keys := slices.SortedFunc(maps.Keys(objects), func(a, b key) int {
		return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
	})
	return slices.DeleteFunc(keys, func(k key) bool { return kind != "" && k.kind != kind })
}

// fingerprint is equal for worlds from which the same can happen. Versions and UIDs count by their order.
func (w *world) fingerprint() uint64 {
	var all []description
	add := func(i *item) {
		if i == nil {
			i = &item{}
		}
		all = append(all, i.description)
	}
	for _, objects := range []map[key]*item{w.objects, w.cached} {
		for _, k := range sorted(objects, "") {
			add(objects[k])
		}
	}
	for _, c := range w.withheld {
		add(c.old)
		add(c.new)
	}
	all = append(all, newDescription(describe(w.operator)))
	var found []string
	for _, d := range all {
		found = append(found, d.identities...)
	}
	slices.Sort(found)
	found = slices.Compact(found)
	hash := fnv.New64a()
	for _, d := range all {
		_, _ = io.WriteString(hash, d.text) // A hash does not fail.
		for _, id := range d.identities {
			rank, _ := slices.BinarySearch(found, id)
			_, _ = hash.Write([]byte{byte(rank), byte(rank >> 8)})
		}
	}
	fmt.Fprintln(hash, w.now, w.held, w.heldFrom, w.queued, w.again, w.failures, w.next, w.left, len(w.findings))
	return hash.Sum64()
}
