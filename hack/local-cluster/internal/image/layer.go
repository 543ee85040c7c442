package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// File is one entry of the only layer of an image: a copied file of the host, a text file,
// a symbolic link or a directory.
type File struct {
	Path string
	Mode fs.FileMode

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
func tmp() File                        { return File{Path: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777} }

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
	l := &layer{files: withParents(files)}
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

// withParents adds the parent directories of the files and sorts the result, so that the
// same files always produce the same layer.
func withParents(files []File) []File {
	byPath := map[string]File{}
	for _, file := range files {
		for dir := path.Dir(file.Path); dir != "/"; dir = path.Dir(dir) {
			if _, known := byPath[dir]; !known {
				byPath[dir] = File{Path: dir, Mode: fs.ModeDir | 0o755}
			}
		}
		byPath[file.Path] = file
	}
	all := make([]File, 0, len(byPath))
	for _, file := range byPath {
		all = append(all, file)
	}
	slices.SortFunc(all, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return all
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

func (f File) write(archive *tar.Writer) error {
	header := &tar.Header{
		Name:    f.Path[1:],
		Mode:    int64(f.Mode.Perm()),
		ModTime: time.Unix(0, 0),
		Format:  tar.FormatPAX,
	}
	switch {
	case f.Mode.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, header.Name+"/"
		if f.Mode&fs.ModeSticky != 0 {
			header.Mode |= 0o1000
		}
	case f.Link != "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, f.Link
	case f.Source != "":
		return f.copy(archive, header)
	default:
		header.Typeflag, header.Size = tar.TypeReg, int64(len(f.Text))
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.WriteString(archive, f.Text)
	return err
}

func (f File) copy(archive *tar.Writer, header *tar.Header) (err error) {
	source, err := os.Open(f.Source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(archive, source)
	return err
}
