package controller

import (
	"encoding/binary"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/values"
)

var _ = Describe("The content of an Echo", func() {
	// The flag -ginkgo.seed reproduces the same Echoes.
	It("results in children that the API server accepts and does not change", func() {
		const echoes = 150
		namespace, accepted := newNamespace(), 0
		for i := range uint64(echoes) {
			echo := values.Random(binary.BigEndian.AppendUint64(nil, uint64(GinkgoRandomSeed())+i<<32))
			echo.Namespace, echo.UID = namespace, ""
			spec := echo.Spec.DeepCopy()
			Expect(admin.Create(ctx, echo, client.DryRunAll)).To(Succeed())
			Expect(equality.Semantic.DeepEqual(echo.Spec, *spec)).To(BeTrue(), "spec = %+v, stored spec = %+v", *spec, echo.Spec)

			if !allAccepted(echo) {
				continue
			}
			// Pod Security validates pods only: the namespace enforces the restricted standard.
			template := deploymentOf(echo)
			children.Deployment(template, echo, children.Inputs{ServerImage: serverImage})
			template.Spec.Template.Spec.PriorityClassName = "" // The class may not exist.
			if err := admin.Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod", Labels: template.Spec.Template.Labels},
				Spec:       template.Spec.Template.Spec,
			}, client.DryRunAll); err != nil {
				expectRejectedForPodField(err)
				continue
			}
			accepted++
		}
		Expect(accepted).To(BeNumerically(">", echoes/3), "accepted children of %d Echoes", echoes)
	})

	It("does not appear in the log, and only truncated and printable in events", func() {
		startOperator()
		namespace, secret := newNamespace(), "wrote\n\x1b[31m"
		text := strings.Repeat(secret, 50)
		ready := createEcho(namespace, "ready", func(s *echov1.EchoSpec) {
			s.Message, s.Image, s.Args = text, "docker.io/library/other:1", []string{text}
		})
		expectReady(ready)
		rejected := createEcho(namespace, "rejected", func(s *echov1.EchoSpec) { s.Message, s.Image = text, " "+text })
		expectCondition(rejected, echov1.ConditionDegraded, metav1.ConditionTrue, echov1.ReasonPodsRejected)
		Expect(message(rejected, echov1.ConditionReady)).To(ContainSubstring("image: Invalid value"))
		crashed := createEcho(namespace, "crashed", func(s *echov1.EchoSpec) { s.Message, s.Image = text, "docker.io/library/server:crash" })
		expectCondition(crashed, echov1.ConditionDegraded, metav1.ConditionTrue, echov1.ReasonCrashLooping)

		var events eventsv1.EventList
		Eventually(func() ([]eventsv1.Event, error) {
			err := admin.List(ctx, &events, client.InNamespace(namespace))
			return events.Items, err
		}).Should(ContainElements(HaveField("Reason", echov1.ReasonReady), HaveField("Reason", echov1.ReasonPodsRejected), HaveField("Reason", echov1.ReasonCrashLooping)))
		for _, event := range events.Items {
			if event.ReportingController != "echo-operator" {
				continue
			}
			Expect(utf8.RuneCountInString(event.Note)).To(BeNumerically("<=", maxNote))
			Expect(event.Note).NotTo(Satisfy(func(note string) bool {
				return strings.ContainsFunc(note, func(r rune) bool { return !unicode.IsPrint(r) })
			}))
		}
		log := string(operatorLog.Contents())
		Expect(strings.Contains(log, namespace)).To(BeTrue(), "the log does not contain the namespace %s", namespace)
		for line := range strings.Lines(log) {
			Expect(line).NotTo(Or(ContainSubstring("wrote"), ContainSubstring("tune")))
		}
	})
})

// allAccepted creates every child of the Echo in a dry run. It expects that the API server accepts
// the child and that mutating the result again changes nothing. It returns false if the API
// server rejected a field that the operator copies from the Echo into the pod.
func allAccepted(echo *echov1.Echo) bool {
	GinkgoHelper()
	accepted := true
	for _, kind := range children.Kinds {
		if !kind.Wanted(echo) {
			continue
		}
		child := kind.New()
		child.SetNamespace(echo.Namespace)
		child.SetName(kind.ChildName(echo))
		kind.Mutate(child, echo, inputs)
		if err := admin.Create(ctx, child, client.DryRunAll); err != nil {
			expectRejectedForPodField(err)
			accepted = false
			continue
		}
		defaulted := child.DeepCopyObject()
		kind.Mutate(child, echo, inputs)
		Expect(equality.Semantic.DeepEqual(child, defaulted)).To(BeTrue(), "stored %s = %+v, desired state = %+v", kind.Name, defaulted, child)
	}
	return accepted
}

// expectRejectedForPodField expects that the API server rejected only fields that the operator
// copies from the Echo into the pod, and that the schema of an Echo cannot validate.
func expectRejectedForPodField(err error) {
	GinkgoHelper()
	var rejection apierrors.APIStatus
	Expect(errors.As(err, &rejection)).To(BeTrue(), "%v", err)
	Expect(rejection.Status().Reason).To(Equal(metav1.StatusReasonInvalid), "%v", err)
	for _, cause := range rejection.Status().Details.Causes {
		Expect(cause.Field).To(MatchRegexp(`spec\.(containers\[\d+\]\.(image|resources)|tolerations\[\d+\]\.key)`), cause.Message)
	}
}
