//go:build linux

package main

import (
	"fmt"
	"time"
)

// step runs a function and prints its result and duration.
func (c *cluster) step(name string, run func() error) error {
	begin := time.Now()
	err := run()
	mark := "✓"
	if err != nil {
		mark = "✗"
	}
	c.report(mark, name, time.Since(begin))
	return err
}

func (c *cluster) report(mark, name string, duration time.Duration) {
	fmt.Fprintf(c.out, "%s %-14s %5.1fs\n", mark, name, duration.Seconds())
}
