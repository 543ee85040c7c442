package version

import (
	"os"
	"path/filepath"
	"testing"
)

func TestExpandReplacesVariableWithVersionFromBuildInformation(t *testing.T) {
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binDir, program := filepath.Split(executable)
	variables["${TEST_VERSION}"] = source{program, "github.com/kkloud-io/echo-operator/hack"}
	t.Cleanup(func() { delete(variables, "${TEST_VERSION}") })

	got, err := Expand("image: test:v${TEST_VERSION}", binDir)
	if err != nil {
		t.Fatal(err)
	}
	if want := "image: test:v(devel)"; got != want {
		t.Errorf("Expand() = %q, want %q", got, want)
	}
}

func TestExpandWithoutProgramReturnsError(t *testing.T) {
	if got, err := Expand("v${OLM_VERSION}", t.TempDir()); err == nil {
		t.Errorf("Expand() in an empty directory = %q, want an error", got)
	}
	if _, err := Expand("no variable", t.TempDir()); err != nil {
		t.Errorf("Expand() of a text without variables = %v, want no error", err)
	}
}
