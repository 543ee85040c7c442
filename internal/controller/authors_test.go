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
	"github.com/kkloud-io/echo-operator/internal/testing/random"
)

var _ = Describe("Whatever an author writes", func() {
	// The same seed makes the same Echoes: -ginkgo.seed.
	It("becomes children that the API server takes, and whose defaults the operator knows", func() {
		const echoes = 150
		namespace, taken := newNamespace(), 0
		for i := range uint64(echoes) {
			echo := random.Echo(binary.BigEndian.AppendUint64(nil, uint64(GinkgoRandomSeed())+i<<32))
			echo.Namespace, echo.UID = namespace, ""
			spec := echo.Spec.DeepCopy()
			Expect(admin.Create(ctx, echo, client.DryRunAll)).To(Succeed())
			Expect(equality.Semantic.DeepEqual(echo.Spec, *spec)).To(BeTrue(), "the API server changed %+v to %+v", *spec, echo.Spec)

			service, budget, deployment := serviceOf(echo), budgetOf(echo), deploymentOf(echo)
			expectTaken(service, func() { children.Service(service, echo) })
			expectTaken(budget, func() { children.PodDisruptionBudget(budget, echo) })
			shape := func() { children.Deployment(deployment, echo, serverImage) }
			shape()
			if err := admin.Create(ctx, deployment.DeepCopy(), client.DryRunAll); err != nil {
				expectRefusedForPassedOn(err)
				continue
			}
			expectTaken(deployment, shape)
			// The namespace enforces the restricted Pod Security Standard.
			if err := admin.Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod", Labels: deployment.Spec.Template.Labels},
				Spec:       deployment.Spec.Template.Spec,
			}, client.DryRunAll); err != nil {
				expectRefusedForPassedOn(err)
				continue
			}
			taken++
		}
		Expect(taken).To(BeNumerically(">", echoes/3), "of %d Echoes", echoes)
	})

	It("gets neither whole nor raw into the log or an event", func() {
		startOperator()
		namespace, secret := newNamespace(), "wrote\n\x1b[31m"
		text := strings.Repeat(secret, 50)
		ready := createEcho(namespace, "ready", func(s *echov1.EchoSpec) {
			s.Message, s.Page, s.Image, s.Args = text, &echov1.Page{Title: strings.Repeat(secret, 20)}, "docker.io/library/other:1", []string{text}
		})
		becomesReady(ready)
		refused := createEcho(namespace, "refused", func(s *echov1.EchoSpec) { s.Message, s.Image = text, " "+text })
		becomes(refused, echov1.ConditionDegraded, metav1.ConditionTrue, echov1.ReasonPodsRejected)
		Expect(message(refused, echov1.ConditionReady)).To(ContainSubstring("image: Invalid value"))
		crashed := createEcho(namespace, "crashed", func(s *echov1.EchoSpec) { s.Message, s.Image = text, "docker.io/library/server:crash" })
		becomes(crashed, echov1.ConditionDegraded, metav1.ConditionTrue, echov1.ReasonCrashLooping)

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
		log := string(logs.Contents())
		Expect(strings.Contains(log, namespace)).To(BeTrue(), "the log is read")
		for line := range strings.Lines(log) {
			Expect(line).NotTo(Or(ContainSubstring("wrote"), ContainSubstring("tune")))
		}
	})
})

// expectRefusedForPassedOn checks that nothing is refused but what goes from the Echo into
// the pod as it is, and what no schema of ours can judge.
func expectRefusedForPassedOn(err error) {
	GinkgoHelper()
	var refusal apierrors.APIStatus
	Expect(errors.As(err, &refusal)).To(BeTrue(), "%v", err)
	Expect(refusal.Status().Reason).To(Equal(metav1.StatusReasonInvalid), "%v", err)
	for _, cause := range refusal.Status().Details.Causes {
		Expect(cause.Field).To(MatchRegexp(`spec\.containers\[0\]\.(image|resources)`), cause.Message)
	}
}

// expectTaken creates a child as if, and shapes what the API server made of it once more.
func expectTaken(child client.Object, shape func()) {
	GinkgoHelper()
	shape()
	Expect(admin.Create(ctx, child, client.DryRunAll)).To(Succeed())
	defaulted := child.DeepCopyObject()
	shape()
	Expect(equality.Semantic.DeepEqual(child, defaulted)).To(BeTrue(), "the API server has it as %+v, and the operator wants %+v", defaulted, child)
}
