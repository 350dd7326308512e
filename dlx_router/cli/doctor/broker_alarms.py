"""What `doctor` says of the broker's alarms: the management API names the node and AMQP does not."""

from contextlib import suppress

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.alarm import Alarm
from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.examination import Examination
from dlx_router.broker.link import open_link
from dlx_router.broker.management import ManagementError
from dlx_router.cli.doctor import diagnosis
from dlx_router.cli.doctor.diagnosis import Diagnosis


async def raised(host: Host, login: Login, tls: Tls | None, examination: Examination | None) -> Diagnosis | None:
    """The alarms of the cluster, or that there are none; None where nobody says."""
    if examination is not None:
        with suppress(ManagementError):  # said already, by who asked it first
            return diagnosis.alarms(await examination.alarms())
    try:
        link = await open_link(host, login, tls=tls, heartbeat=10, name="dlx-router doctor")
        async with Alarm(link) as alarm:
            reason = await alarm.look()
    except (LinkError, ChannelClosed, TimeoutError):
        return None
    return diagnosis.alarms([(f"{host.name}:{host.port}", reason)] if reason else [])
