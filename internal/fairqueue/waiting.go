package fairqueue

import "slices"

// waiting has the items that wait for a seat. Urgent and other items alternate, so that neither kind starves,
// and among the items of a kind the namespaces take turns.
type waiting[T comparable] struct {
	urgent, other round[T]
	// otherNext is true after an urgent item.
	otherNext bool
}

func (w *waiting[T]) push(namespace string, item T, urgent bool) {
	if urgent {
		w.urgent.push(namespace, item)
	} else {
		w.other.push(namespace, item)
	}
}

// makeUrgent moves an item to the urgent ones, unless it is one already.
func (w *waiting[T]) makeUrgent(namespace string, item T) {
	if w.other.remove(namespace, item) {
		w.urgent.push(namespace, item)
	}
}

// next takes out the item whose turn it is, if there is one in a namespace that may have it.
func (w *waiting[T]) next(mayHave func(namespace string) bool) (item T, found bool) {
	first, second := &w.urgent, &w.other
	if w.otherNext {
		first, second = second, first
	}
	for _, r := range []*round[T]{first, second} {
		if item, found = r.next(mayHave); found {
			w.otherNext = r == &w.urgent
			return item, true
		}
	}
	return item, false
}

func (w *waiting[T]) len() int { return w.urgent.len() + w.other.len() }

// round has items by namespace, in the order of their arrival.
type round[T comparable] struct {
	// turns are the namespaces with items, the next one first.
	turns []string
	items map[string][]T
}

func (r *round[T]) push(namespace string, item T) {
	if r.items == nil {
		r.items = map[string][]T{}
	}
	if len(r.items[namespace]) == 0 {
		r.turns = append(r.turns, namespace)
	}
	r.items[namespace] = append(r.items[namespace], item)
}

func (r *round[T]) next(mayHave func(namespace string) bool) (item T, found bool) {
	turn := slices.IndexFunc(r.turns, mayHave)
	if turn < 0 {
		return item, false
	}
	namespace := r.turns[turn]
	item = r.items[namespace][0]
	r.remove(namespace, item)
	if len(r.items[namespace]) > 0 {
		r.turns = append(slices.Delete(r.turns, turn, turn+1), namespace)
	}
	return item, true
}

func (r *round[T]) remove(namespace string, item T) (found bool) {
	i := slices.Index(r.items[namespace], item)
	switch {
	case i < 0:
		return false
	case i == 0:
		r.items[namespace] = r.items[namespace][1:]
	default:
		r.items[namespace] = slices.Delete(r.items[namespace], i, i+1)
	}
	if len(r.items[namespace]) == 0 {
		delete(r.items, namespace)
		r.turns = slices.DeleteFunc(r.turns, func(n string) bool { return n == namespace })
	}
	return true
}

func (r *round[T]) len() (count int) {
	for _, items := range r.items {
		count += len(items)
	}
	return count
}
