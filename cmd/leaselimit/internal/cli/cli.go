// Package cli runs a program of several commands: it finds the command, parses its flags, and turns errors into one line on
// standard error and an exit status.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// The exit statuses.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// Streams is where a command writes.
type Streams struct {
	Out io.Writer // results
	Err io.Writer // errors, and what is said on the way
}

// say writes to the standard error. If nobody can be told, nobody can be told that either.
func (s Streams) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.Err, format, args...)
}

// A Command is one of a program's commands.
type Command struct {
	Name  string
	Args  string // what follows the flags, for the usage line: "TENANT"; empty: nothing may
	Short string // one line, for the list of commands
	Long  string // a few lines, above the flags

	// Setup defines the flags and returns what runs once they are parsed. args is what is no flag.
	Setup func(flags *flag.FlagSet) func(ctx context.Context, args []string, s Streams) error
}

// A Program is a set of commands.
type Program struct {
	Name     string
	Commands []Command
}

// usageError is an error of the one who called.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// Usagef returns an error of the one who called: it leads to ExitUsage and to a hint at the help.
func Usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// Run runs the command that args name and returns the exit status.
func (p Program) Run(ctx context.Context, args []string, s Streams) int {
	if len(args) == 0 {
		s.say("%s", p.help())
		return ExitUsage
	}
	name, rest := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		if name != "help" || len(rest) == 0 {
			return s.exit(p.Name, write(s.Out, p.help()))
		}
		name, rest = rest[0], []string{"-h"}
	}
	for _, c := range p.Commands {
		if c.Name == name {
			title := p.Name + " " + c.Name
			return s.exit(title, c.run(ctx, title, rest, s))
		}
	}
	return s.exit(p.Name, Usagef("there is no command %q", name))
}

func (c Command) run(ctx context.Context, title string, args []string, s Streams) error {
	flags := flag.NewFlagSet(title, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	do := c.Setup(flags)
	rest, err := parse(flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return write(s.Out, c.help(title, flags))
	case err != nil:
		return usageError{err.Error()}
	case c.Args == "" && len(rest) > 0:
		return Usagef("%q is no flag, and only flags are understood here", rest[0])
	}
	return do(ctx, rest, s)
}

// exit says what went wrong, and is the status for it.
func (s Streams) exit(title string, err error) int {
	if err == nil {
		return ExitOK
	}
	s.say("%s: %v\n", title, err)
	if _, ok := errors.AsType[usageError](err); ok {
		s.say("Run '%s -h' for help.\n", title)
		return ExitUsage
	}
	return ExitFailed
}

func write(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

// parse parses flags before and after other arguments, and returns those. After "--" nothing is a flag.
func parse(flags *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		left := flags.Args()
		if len(left) == 0 {
			return rest, nil
		}
		if end := len(args) - len(left); end > 0 && args[end-1] == "--" {
			return append(rest, left...), nil
		}
		rest, args = append(rest, left[0]), left[1:]
	}
}

func (p Program) help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s COMMAND [flags]\n\nCommands:\n", p.Name)
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "  %-8s  %s\n", c.Name, c.Short)
	}
	fmt.Fprintf(&b, "\nRun '%s COMMAND -h' for the flags of a command.\n", p.Name)
	return b.String()
}

func (c Command) help(title string, flags *flag.FlagSet) string {
	var b strings.Builder
	usage := strings.TrimSpace("Usage: " + title + " [flags] " + c.Args)
	fmt.Fprintf(&b, "%s\n\n%s\n\nFlags:\n", usage, strings.TrimSpace(c.Long))
	flags.SetOutput(&b)
	flags.PrintDefaults()
	return b.String()
}

// WasSet reports whether a flag was given.
func WasSet(flags *flag.FlagSet, name string) bool {
	given := false
	flags.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	return given
}
