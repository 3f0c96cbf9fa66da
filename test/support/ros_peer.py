"""A ROS node in the test's process that talks to the nodes under test, in a domain of its own."""

from collections.abc import Callable
import threading
from typing import Any

from support.waiting import DEADLINE_SECONDS, wait_until


class Inbox:
    """The messages of one topic, in the order of their coming."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.subscription: Any = None
        self._grown = threading.Condition()

    def put(self, message: Any) -> None:
        with self._grown:
            self.messages.append(message)
            self._grown.notify_all()

    def wait_for(
        self, matches: Callable[[Any], bool] = lambda message: True, what: str = 'a message'
    ) -> Any:
        """Wait for a message that matches, also among those that came already."""

        def first() -> Any:
            return next((message for message in self.messages if matches(message)), None)

        with self._grown:
            assert self._grown.wait_for(lambda: first() is not None, DEADLINE_SECONDS), (
                f'waited in vain for {what}; last of {len(self.messages)}: {self.messages[-1:]}'
            )
            return first()


class Peer:
    """Another program in the domain: calls services, publishes, subscribes."""

    def __init__(self, domain_id: int) -> None:
        import rclpy
        from rclpy.executors import SingleThreadedExecutor

        self.context = rclpy.Context()
        rclpy.init(context=self.context, domain_id=domain_id)
        self.node = rclpy.create_node(
            'peer', context=self.context, start_parameter_services=False, enable_rosout=False
        )
        self._clients: dict[str, Any] = {}
        self._topics: list[tuple[Callable[[Any], Any], Any]] = []
        self._executor = SingleThreadedExecutor(context=self.context)
        self._executor.add_node(self.node)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._spin)
        self._thread.start()

    def _spin(self) -> None:
        while not self._ending.is_set():
            self._executor.spin_once()

    def run_on_executor(self, work: Callable[[], Any]) -> Any:
        """Change the node's entities while nothing waits for them."""
        done, result = threading.Event(), []
        self._executor.create_task(lambda: (result.append(work()), done.set()))
        assert done.wait(DEADLINE_SECONDS)
        return result[0]

    def wait_until(
        self, condition: Callable[[], Any], what: str = 'a condition', pause: float = 0.01
    ) -> Any:
        """Wait as wait_until() does; fail at once when the thread of this peer has ended."""

        def checked() -> Any:
            assert self._thread.is_alive(), f'the peer failed before {what}'
            return condition()

        return wait_until(checked, what, pause)

    def close(self) -> None:
        import rclpy

        self._ending.set()
        self._executor.create_task(lambda: None)  # wake() alone does not end a spin_once().
        self._thread.join()
        self._executor.shutdown()
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)

    def ask(self, kind: type, service: str, **fields: Any) -> Any:
        """Send a request, return the future of its answer."""
        if service not in self._clients:
            self._clients[service] = self.run_on_executor(
                lambda: self.node.create_client(kind, service)
            )
            wait_until(self._clients[service].service_is_ready, service)
        return self._clients[service].call_async(kind.Request(**fields))

    def call(self, kind: type, service: str, **fields: Any) -> Any:
        """
        Send a request that may be repeated, and return the answer.

        The first answer to a new client is lost when the server has not discovered it yet.
        """
        return self._repeat(lambda: self.ask(kind, service, **fields), service)

    def _repeat(
        self, ask: Callable[[], Any], service: str, is_gone: Callable[[], bool] = lambda: False
    ) -> Any:
        """Ask again, after twice the time, until one has an answer or the server is gone."""
        is_answered, answers, seconds = threading.Event(), [], 0.2

        def on_answer(future: Any) -> None:
            answers.append(future)
            is_answered.set()

        def answered() -> Any:
            nonlocal seconds
            seconds *= 2
            ask().add_done_callback(on_answer)
            return answers[0].result() if is_answered.wait(seconds) else is_gone()

        return wait_until(answered, f'an answer of {service}')

    def wait(self, answered: Any, what: str = 'an answer') -> Any:
        """Wait for the future of an answer."""
        is_done = threading.Event()
        answered.add_done_callback(lambda future: is_done.set())
        wait_until(lambda: is_done.wait(1.0), what)
        return answered.result()

    def inbox(self, kind: type, topic: str, qos: Any = 100) -> Inbox:
        """Subscribe, and wait until the publisher is there."""
        from rclpy.node import SubscriptionEventCallbacks

        box, silent = Inbox(), SubscriptionEventCallbacks(use_default_callbacks=False)
        subscription = self.run_on_executor(
            lambda: self.node.create_subscription(
                kind, topic, box.put, qos, event_callbacks=silent
            )
        )
        self._topics.append((self.node.destroy_subscription, subscription))
        wait_until(subscription.get_publisher_count, f'a publisher of {topic}')
        self._become_known(topic, self.node.get_publishers_info_by_topic)
        box.subscription = subscription
        return box

    def inboxes(self, name: str, **kinds: type) -> list[Inbox]:
        """Subscribe to topics of a node, each with its type."""
        return [self.inbox(kind, f'/{name}/{topic}') for topic, kind in kinds.items()]

    def _become_known(self, topic: str, list_endpoints: Callable[[str], Any]) -> None:
        """
        Wait until the nodes at the other end of a topic know all that was made here so far.

        Messages before that are lost. Nodes discover in the order of making: who answers a client
        that is made now knows the rest.
        """
        from rcl_interfaces.srv import GetParameters

        def names() -> set[str]:
            found = list_endpoints(topic)
            return {f'{each.node_namespace.rstrip("/")}/{each.node_name}' for each in found}

        wait_until(
            lambda: names() and not any('UNKNOWN' in name for name in names()),
            f'the names of the nodes at {topic}',
        )
        for name in names():
            service = f'{name}/get_parameters'
            if service not in (each for each, _ in self.node.get_service_names_and_types()):
                continue

            def is_gone(name: str = name) -> bool:
                return name not in names()

            client = self.run_on_executor(
                lambda service=service: self.node.create_client(GetParameters, service)
            )
            wait_until(lambda client=client: client.service_is_ready() or is_gone(), service)
            self._repeat(
                lambda client=client: client.call_async(GetParameters.Request()), service, is_gone
            )
            self.run_on_executor(lambda client=client: self.node.destroy_client(client))

    def close_inbox(self, box: Inbox) -> None:
        self.run_on_executor(lambda: self.node.destroy_subscription(box.subscription))

    def publisher(self, kind: type, topic: str, qos: Any = 100) -> Any:
        from rclpy.node import PublisherEventCallbacks

        silent = PublisherEventCallbacks(use_default_callbacks=False)
        publisher = self.run_on_executor(
            lambda: self.node.create_publisher(kind, topic, qos, event_callbacks=silent)
        )
        self._topics.append((self.node.destroy_publisher, publisher))
        return publisher

    def connected(self, kind: type, topic: str, qos: Any = 100) -> Any:
        """Return a publisher that the nodes which subscribe know."""
        publisher = self.publisher(kind, topic, qos)
        self.wait_until(publisher.get_subscription_count, f'a subscriber of {topic}')
        self._become_known(topic, self.node.get_subscriptions_info_by_topic)
        return publisher

    @property
    def topic_count(self) -> int:
        """Number of publishers and subscriptions."""
        return len(self._topics)

    def forget_topics(self, since: int = 0) -> None:
        """Destroy the later ones: each call of the executor takes time for each of them."""
        made, self._topics = self._topics[since:], self._topics[:since]
        self.run_on_executor(lambda: [destroy(each) for destroy, each in made])

    def forget_services(self, node: str) -> None:
        """Destroy the clients of a node that has ended."""
        names = [each for each in self._clients if each.startswith(f'/{node}/')]
        clients = [self._clients.pop(each) for each in names]
        if clients:
            self.run_on_executor(lambda: [self.node.destroy_client(each) for each in clients])
