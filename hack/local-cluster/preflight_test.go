//go:build linux

package main

import (
	"os"
	"strings"
	"testing"
)

func TestLoadModules(t *testing.T) {
	for name, tt := range map[string]struct {
		modprobe string
		present  []string
		want     string
	}{
		"all built in, without modprobe": {present: []string{"a", "b"}},
		"modprobe loads all":             {modprobe: `[ "$*" = "-a a b" ] && touch a b`},
		"modprobe loads the missing one": {modprobe: `[ "$*" = "-a b" ] && touch b`, present: []string{"a"}},
		"modprobe loads one of two":      {modprobe: `touch a; echo b not found; exit 1`, want: ": modprobe -a b\n"},
		"modprobe has no effect":         {modprobe: `true`, want: ": modprobe -a a b\n"},
		"no modprobe":                    {want: ": modprobe -a a b\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			files := map[string]string{"modprobe": "#!/bin/sh\n" + tt.modprobe}
			if tt.modprobe == "" {
				clear(files)
			}
			for _, file := range tt.present {
				files[file] = ""
			}
			for name, content := range files {
				if err := os.WriteFile(name, []byte(content), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			err := loadModules("./modprobe", map[string]string{"a": "a", "b": "b"})
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("loadModules() = %v, want no error", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("loadModules() = %v, want an error that contains %q", err, tt.want)
			}
		})
	}
}
