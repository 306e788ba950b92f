package seen

import (
	"context"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/leaselimit/leaselimit/debugpage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// browser is a page in Chromium, and what went wrong in it.
type browser struct {
	context.Context //nolint:containedctx // it is the browser, to chromedp

	mu     sync.Mutex
	faults []string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program(t, "chromium", "chromium")),
		chromedp.NoSandbox, // root has none
		chromedp.UserDataDir(t.TempDir()))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	b := &browser{Context: ctx}
	require.NoError(t, chromedp.Listen(ctx, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch ev := ev.(type) {
		case *page.EventJavascriptDialogOpening:
			b.faults = append(b.faults, "a dialog: "+ev.Message)
		case *runtime.EventExceptionThrown:
			b.faults = append(b.faults, ev.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			if !strings.Contains(ev.Entry.URL, "favicon") {
				b.faults = append(b.faults, ev.Entry.Text)
			}
		}
	}))
	return b
}

func (b *browser) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.faults
}

// eval is the value of a JavaScript expression.
func eval[T any](t *testing.T, b *browser, expression string) T {
	t.Helper()
	v, err := chromedp.Run(b, chromedp.Evaluate[T](expression))
	require.NoError(t, err)
	return v
}

// shoot looks at target, and keeps a picture.
func (b *browser) shoot(t *testing.T, target, file string, width, height int64, scheme string) {
	t.Helper()
	_, err := chromedp.Call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	require.NoError(t, err)
	require.NoError(t, chromedp.Do(b, chromedp.EmulateViewport(width, height), chromedp.Navigate(target)))
	assert.Zero(t, eval[int](t, b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`),
		"%s: pixels that the page is too wide", file)
	want := map[string]string{"light": "rgb(246, 246, 244)", "dark": "rgb(20, 23, 26)"}[scheme]
	assert.Equal(t, want, eval[string](t, b, `getComputedStyle(document.body).backgroundColor`), "%s: the style is in force", file)
	picture, err := chromedp.Run(b, chromedp.FullScreenshot(100))
	require.NoError(t, err)
	require.NotEmpty(t, picture)
	if *out != "" {
		require.NoError(t, os.WriteFile(filepath.Join(*out, file+".png"), picture, 0o600))
	}
}

var sizes = []struct {
	name          string
	width, height int64
}{{"desktop", 1280, 900}, {"phone", 390, 844}}

func TestThePageInABrowser(t *testing.T) {
	s := newService(t)
	s.run(t, 2*time.Second)
	s.wire.cut.Store(true)
	s.run(t, 3*time.Second)
	server := httptest.NewServer(debugpage.Handler(s.api, s.export))
	defer server.Close()
	b := newBrowser(t)
	s.start(t) // who is not called leaves memory, however long the browser takes
	for _, scheme := range []string{"light", "dark"} {
		for _, size := range sizes {
			b.shoot(t, server.URL+"/?tenant="+url.QueryEscape(hostile), "page-"+size.name+"-"+scheme, size.width, size.height, scheme)
			names := eval[[]string](t, b, `[...document.querySelectorAll('td.name')].map(e => e.firstChild.textContent.trim())`)
			assert.Contains(t, names, hostile, "as text")
			assert.Contains(t, names, "acme")
			assert.Equal(t, hostile, eval[string](t, b, `document.querySelector('input').value`))
			assert.Zero(t, eval[int](t, b, `document.images.length + document.scripts.length`))
		}
	}
	// A person looks for a tenant.
	require.NoError(t, chromedp.Do(b, chromedp.Navigate(server.URL), chromedp.SendKeys(`input[name=tenant]`, "acme\r"),
		chromedp.WaitVisible(`//h3[text()="Found"]`)))
	text := eval[string](t, b, `document.querySelector('table').innerText`)
	assert.Contains(t, text, "acme")
	assert.Contains(t, text, "20, 20/s")
	assert.Empty(t, b.seen(), "what the browser complained of")
}
