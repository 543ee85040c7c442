//go:build linux

package main

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		name  string
		args  []string
		want  []string
		state string
	}{
		{"flags before the command", []string{"-bin", dir, "up"}, []string{"up"}, filepath.Join(dir, "cluster")},
		{"flags after the command", []string{"down", "-bin", dir}, []string{"down"}, filepath.Join(dir, "cluster")},
		{"OLM v1", []string{"-bin", dir, "olm-v1"}, []string{"olm-v1"}, filepath.Join(dir, "cluster")},
		{"a state directory", []string{"-state", dir, "status"}, []string{"status"}, dir},
		{"exec with a separator", []string{"-state", dir, "exec", "--", "ls", "-l"}, []string{"exec", "ls", "-l"}, dir},
		{"exec without one", []string{"-state", dir, "exec", "ls", "-l"}, []string{"exec", "ls", "-l"}, dir},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, args, err := parse(test.args)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(args, test.want) {
				t.Errorf("got the arguments %q, want %q", args, test.want)
			}
			if string(c.dir) != test.state {
				t.Errorf("got the state directory %q, want %q", c.dir, test.state)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, args := range [][]string{nil, {"sideways"}, {"up", "now"}, {"exec"}, {"exec", "--"}, {"-no-such-flag", "up"}} {
		if _, _, err := parse(args); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
