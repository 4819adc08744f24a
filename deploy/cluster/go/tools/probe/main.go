// Command probe is the whole content of the image that tests of the cluster run: a web server, and questions to ask
// from inside a pod. A question prints its answer and ends with 0, or prints the refusal and ends with 1.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const patience = 5 * time.Second

var questions = map[string]func(argument string) (string, error){
	"serve":     serve,
	"fetch":     fetch,
	"connect":   connect,
	"resolve":   resolve,
	"read":      read,
	"namespace": enterNamespace,
}

func main() {
	if len(os.Args) != 3 || questions[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: probe serve ADDRESS | fetch URL | connect HOST:PORT | resolve NAME | read FILE | namespace COMMAND")
		os.Exit(2)
	}
	answer, err := questions[os.Args[1]](os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(answer)
}

// serve answers every request with the pod's name until the process is ended.
func serve(address string) (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", err
	}
	return "", http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, name)
	}))
}

func fetch(url string) (string, error) {
	response, err := (&http.Client{Timeout: patience}).Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	return strings.TrimSpace(string(body)), err
}

// connect reports whether a connection is made at all, whatever the server speaks.
func connect(address string) (string, error) {
	connection, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return "", err
	}
	return "connected", connection.Close()
}

func resolve(name string) (string, error) {
	addresses, err := net.LookupHost(name)
	return strings.Join(addresses, " "), err
}

func read(path string) (string, error) {
	content, err := os.ReadFile(path)
	return strings.TrimSpace(string(content)), err
}

// enterNamespace runs this program with another question in new user and mount namespaces, as sandboxes do.
func enterNamespace(question string) (string, error) {
	words := strings.Fields(question)
	command := exec.Command("/proc/self/exe", words...)
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
	}
	answer, err := command.CombinedOutput()
	return strings.TrimSpace(string(answer)), err
}
