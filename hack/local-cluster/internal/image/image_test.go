package image

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func TestLayerOfSameFilesHasSameDigest(t *testing.T) {
	source := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(source, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := []File{link("/bin/link", "program"), program("/bin/program", source), tmp()}

	first, err := newLayer(files)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(files)
	if err := os.Chtimes(source, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	second, err := newLayer(files)
	if err != nil {
		t.Fatal(err)
	}
	if one, other := digest(t, first), digest(t, second); one != other {
		t.Errorf("layer of the same files in another order: digest = %s, want %s", other, one)
	}

	content, err := first.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var got []string
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, header.FileInfo().Mode().String()+" "+header.Name)
	}
	want := []string{"drwxr-xr-x bin/", "Lrwxrwxrwx bin/link", "-rwxr-xr-x bin/program", "dtrwxrwxrwx tmp/"}
	if !slices.Equal(got, want) {
		t.Errorf("layer: entries = %q, want %q", got, want)
	}
}

func TestMirrorReferenceOmitsRegistryHost(t *testing.T) {
	for image, want := range map[string]string{
		"registry.k8s.io/pause:3.10.1":        "127.0.0.1:5000/pause:3.10.1",
		"quay.io/operator-framework/opm:v1":   "127.0.0.1:5000/operator-framework/opm:v1",
		"docker.io/library/busybox:1.37":      "127.0.0.1:5000/library/busybox:1.37",
		"docker.io/hashicorp/http-echo:1.0.0": "127.0.0.1:5000/hashicorp/http-echo:1.0.0",
	} {
		reference, err := mirrorReference("127.0.0.1:5000", image)
		if err != nil {
			t.Fatal(err)
		}
		if got := reference.Name(); got != want {
			t.Errorf("mirrorReference(%q) = %s, want %s", image, got, want)
		}
	}
}

func digest(t *testing.T, layer v1.Layer) string {
	t.Helper()
	digest, err := layer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}
