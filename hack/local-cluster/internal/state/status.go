package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Status is the status of the processes that init started.
type Status struct {
	// Running is true once the API server is ready and init has started every component.
	Running bool `json:"running"`

	// Components are in the order of their start.
	Components []Component `json:"components"`
}

// Component is a long-running process of the cluster.
type Component struct {
	Name string `json:"name"`

	// PID is the process ID inside the sandbox.
	PID int `json:"pid"`

	// Exited describes how the process exited. It is empty while the process runs.
	Exited string `json:"exited,omitempty"`
}

// FirstExited returns the first component that exited, or nil.
func (s Status) FirstExited() *Component {
	for i, component := range s.Components {
		if component.Exited != "" {
			return &s.Components[i]
		}
	}
	return nil
}

// ReadStatus returns the last written status, or the zero Status if there is none.
func (d Dir) ReadStatus() (Status, error) {
	var status Status
	data, err := os.ReadFile(d.statusFile())
	if errors.Is(err, fs.ErrNotExist) {
		return status, nil
	}
	if err != nil {
		return status, fmt.Errorf("read the cluster's status: %w", err)
	}
	if err := json.Unmarshal(data, &status); err != nil {
		return status, fmt.Errorf("parse the cluster's status: %w", err)
	}
	return status, nil
}

// WriteStatus replaces the status atomically.
func (d Dir) WriteStatus(status Status) error {
	data, err := json.MarshalIndent(status, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the cluster's status: %w", err)
	}
	next := d.statusFile() + ".new"
	if err := os.WriteFile(next, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the cluster's status: %w", err)
	}
	if err := os.Rename(next, d.statusFile()); err != nil {
		return fmt.Errorf("replace the cluster's status: %w", err)
	}
	return nil
}
