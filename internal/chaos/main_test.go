package chaos_test

import (
	"testing"

	"github.com/leaselimit/leaselimit/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
