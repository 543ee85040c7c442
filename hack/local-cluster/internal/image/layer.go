package image

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// File is one entry of the only layer of an image: a copied file of the host, a text file,
// a symbolic link, or a directory, whose path ends with a slash. Clients create missing parent directories.
type File struct {
	Path string
	Mode int64

	// Source is the path of the file to copy from the host.
	Source string
	// Link is the target of a symbolic link.
	Link string
	// Text is the content of a file without a source.
	Text string
}

func program(path, source string) File { return File{Path: path, Mode: 0o755, Source: source} }
func text(path, content string) File   { return File{Path: path, Mode: 0o644, Text: content} }
func script(path, content string) File { return File{Path: path, Mode: 0o755, Text: content} }
func link(path, target string) File    { return File{Path: path, Mode: 0o777, Link: target} }
func tmp() File                        { return File{Path: "/tmp/", Mode: 0o1777} }

// layer is a v1.Layer that streams its content from the files on each read, which avoids
// a copy of several hundred megabytes in memory or on disk.
//
// It is not compressed, because compression would take longer than all other steps and
// the registry is on the same machine. So its digest equals its diff ID.
type layer struct {
	files  []File
	digest v1.Hash
	size   int64
}

func newLayer(files []File) (v1.Layer, error) {
	l := &layer{files: files}
	content, err := l.Uncompressed()
	if err != nil {
		return nil, err
	}
	defer content.Close()
	l.digest, l.size, err = v1.SHA256(content)
	return l, err
}

func (l *layer) Digest() (v1.Hash, error)            { return l.digest, nil }
func (l *layer) DiffID() (v1.Hash, error)            { return l.digest, nil }
func (l *layer) Size() (int64, error)                { return l.size, nil }
func (l *layer) MediaType() (types.MediaType, error) { return types.OCIUncompressedLayer, nil }
func (l *layer) Compressed() (io.ReadCloser, error)  { return l.Uncompressed() }
func (l *layer) Uncompressed() (io.ReadCloser, error) {
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(writeTar(writer, l.files)) }()
	return reader, nil
}

func writeTar(to io.Writer, files []File) error {
	archive := tar.NewWriter(to)
	for _, file := range files {
		if err := file.write(archive); err != nil {
			return fmt.Errorf("add %s: %w", file.Path, err)
		}
	}
	return archive.Close()
}

// write leaves the time of the file at its zero value, so that the same files always produce the same layer.
func (f File) write(archive *tar.Writer) error {
	header := &tar.Header{Name: f.Path[1:], Mode: f.Mode, Size: int64(len(f.Text))}
	var content io.Reader = strings.NewReader(f.Text)
	if f.Link != "" {
		header.Typeflag, header.Linkname = tar.TypeSymlink, f.Link
	}
	if f.Source != "" {
		source, err := os.Open(f.Source)
		if err != nil {
			return err
		}
		defer source.Close()
		info, err := source.Stat()
		if err != nil {
			return err
		}
		header.Size, content = info.Size(), source
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(archive, content)
	return err
}
