package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Status is what the jail's init knows about the processes it started.
type Status struct {
	// Running is set once the API server is ready and every component was started.
	Running bool `json:"running"`

	// Components are in the order in which they were started.
	Components []Component `json:"components"`
}

// Component is one long-running process of the cluster.
type Component struct {
	Name string `json:"name"`

	// PID is the process ID inside the jail.
	PID int `json:"pid"`

	// Exited says how the process ended; it is empty while the process runs.
	Exited string `json:"exited,omitempty"`
}

// Dead returns the first component that should run and does not.
func (s Status) Dead() (Component, bool) {
	for _, component := range s.Components {
		if component.Exited != "" {
			return component, true
		}
	}
	return Component{}, false
}

// ReadStatus returns the last status written; the zero Status if there is none.
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

// WriteStatus replaces the status in one step: a reader never sees half of one.
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
		return fmt.Errorf("publish the cluster's status: %w", err)
	}
	return nil
}
