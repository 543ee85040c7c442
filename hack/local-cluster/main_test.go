//go:build linux

package main

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestParseReturnsCommandAndStateDirectory(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		name  string
		args  []string
		want  []string
		state string
	}{
		{"flags before the command", []string{"-bin", dir, "up"}, []string{"up"}, filepath.Join(dir, "cluster")},
		{"flags after the command", []string{"down", "-bin", dir}, []string{"down"}, filepath.Join(dir, "cluster")},
		{"olm-v1", []string{"-bin", dir, "olm-v1"}, []string{"olm-v1"}, filepath.Join(dir, "cluster")},
		{"gateway", []string{"gateway", "-bin", dir}, []string{"gateway"}, filepath.Join(dir, "cluster")},
		{"state directory", []string{"-state", dir, "status"}, []string{"status"}, dir},
		{"exec with separator", []string{"-state", dir, "exec", "--", "ls", "-l"}, []string{"exec", "ls", "-l"}, dir},
		{"exec without separator", []string{"-state", dir, "exec", "ls", "-l"}, []string{"exec", "ls", "-l"}, dir},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, args, err := parse(test.args)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(args, test.want) {
				t.Errorf("parse(%q): arguments = %q, want %q", test.args, args, test.want)
			}
			if string(c.dir) != test.state {
				t.Errorf("parse(%q): state directory = %q, want %q", test.args, c.dir, test.state)
			}
		})
	}
}

func TestParseRejectsInvalidArguments(t *testing.T) {
	for _, args := range [][]string{nil, {"sideways"}, {"up", "now"}, {"exec"}, {"exec", "--"}, {"-no-such-flag", "up"}} {
		if _, _, err := parse(args); err == nil {
			t.Errorf("parse(%q): no error, want one", args)
		}
	}
}
