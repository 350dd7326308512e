/* Moments come in UTC; this shows them in the zone of the browser. */
(() => {
  const two = "2-digit";
  const format = new Intl.DateTimeFormat("sv-SE", {
    year: "numeric", month: two, day: two, hour: two, minute: two, second: two,
    fractionalSecondDigits: 3, timeZoneName: "shortOffset",
  });
  const show = (root) => root.querySelectorAll("time[datetime]").forEach((time) => {
    const text = format.format(new Date(time.dateTime));
    if (time.title) time.title = text; else time.textContent = text;
  });
  document.addEventListener("htmx:load", (event) => show(event.target));
  show(document);
  const zone = document.getElementById("zone");
  if (zone) zone.textContent = `Times: ${format.resolvedOptions().timeZone}`;
})();
