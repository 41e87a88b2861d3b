package objstore_test

import (
	"testing"

	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
)

func TestMem(t *testing.T) {
	objstoretest.Run(t, func(*testing.T) objstore.Store { return objstore.NewMem() })
}

func TestLocal(t *testing.T) {
	objstoretest.Run(t, func(t *testing.T) objstore.Store {
		t.Helper()
		s, err := objstore.NewLocal(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	})
}
