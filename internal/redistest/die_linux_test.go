package redistest

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/leaselimit/leaselimit/internal/childproc"
	"github.com/stretchr/testify/require"
)

// asChild makes TestServersDieWithTheProcess the process that is killed.
const asChild = "REDISTEST_CHILD"

func TestServersDieWithTheProcess(t *testing.T) {
	if os.Getenv(asChild) != "" {
		s := Start(t)
		_, _ = os.Stdout.WriteString("addr=" + s.Addr() + "\n")
		select {} // until killed
	}
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestServersDieWithTheProcess$", "-test.v")
	cmd.Env = append(os.Environ(), asChild+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())

	addr := ""
	for sc := bufio.NewScanner(out); addr == "" && sc.Scan(); {
		_, addr, _ = strings.Cut(sc.Text(), "addr=")
	}
	require.NoError(t, childproc.Poll(t.Context(), func() (bool, error) {
		_, err := ask(t.Context(), addr, "", "PING")
		return err == nil, err
	}))
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	diesSoon(t, addr)
}
