// Command netpol enforces NetworkPolicy on the node with kube-router's controller: packet filter rules per pod.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file with the address and credentials of the API server")
	node := flag.String("node", "", "name of this node")
	services := flag.String("service-cluster-ip-range", "", "network of the services' addresses")
	flag.Parse()
	stopped, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	if err := enforce(stopped, *kubeconfig, configuration(*node, *services)); err != nil {
		log.Fatal(err)
	}
}

func configuration(node, services string) *options.KubeRouterConfig {
	config := options.NewKubeRouterConfig()
	config.ClusterIPCIDRs = []string{services}
	config.HostnameOverride = node
	config.EnableIPv4, config.EnableIPv6 = true, false
	config.RunFirewall, config.RunRouter, config.RunServiceProxy = true, false, false
	config.MetricsEnabled = false
	// Changes of pods and policies are applied at once; this only repairs rules that another program removed.
	config.IPTablesSyncPeriod = 30 * time.Second
	return config
}

func enforce(stopped context.Context, kubeconfig string, config *options.KubeRouterConfig) error {
	rest, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	factory.Start(stopped.Done())
	factory.WaitForCacheSync(stopped.Done())
	tables, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	controller, err := netpol.NewNetworkPolicyController(
		client, config, pods, policies, namespaces, &sync.Mutex{}, tables, sets)
	if err != nil {
		return err
	}
	pods.AddEventHandler(controller.PodEventHandler)
	namespaces.AddEventHandler(controller.NamespaceEventHandler)
	policies.AddEventHandler(controller.NetworkPolicyEventHandler)
	beats := make(chan *healthcheck.ControllerHeartbeat, 10)
	go func() {
		for range beats { // The node restarts this program when it ends, so no one counts its heartbeats.
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	controller.Run(beats, stopped.Done(), &running)
	return nil
}
