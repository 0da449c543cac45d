"use strict";
// Draws Figure 4 and the metric of the chosen link from the report that the page carries.
(() => {
  const report = JSON.parse(document.getElementById("report-data").textContent);
  const byId = (id) => document.getElementById(id);
  // Counts stay where they are: Plotly's button that uploads a picture's data is not offered, and has no address.
  const config = {
    responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"],
    showSendToCloud: false, plotlyServerURL: "",
  };
  const WEEKDAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  if (!report.links.length) return;

  const link = () => report.links[Number(byId("link").value)];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Not Math.max(...values): a call takes only so many arguments, and months of slots are more.
  const largest = (values) => values.reduce((most, value) => Math.max(most, value), 1);
  const rounded = (value) => (value === null ? "n/a" : value.toPrecision(3));

  function dayName(day) {
    const date = new Date(`${day}T00:00Z`);
    return `${WEEKDAYS[date.getUTCDay()]} ${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}`;
  }

  // Where each local day begins and ends among the test slots: a day may have 23 or 25 hours.
  function daysOf(slots) {
    const days = [];
    slots.local_starts.forEach((start, at) => {
      const day = start.slice(0, 10);
      if (!days.length || days[days.length - 1].day !== day) days.push({ day, first: at, last: at });
      days[days.length - 1].last = at;
    });
    return days;
  }

  // Few enough labels that they do not run into each other.
  function ticks(slots, days, chosen, width) {
    const most = Math.max(1, Math.floor(width / 90));
    if (chosen) {
      const hours = [];
      for (let at = chosen.first; at <= chosen.last; at += 1) {
        const clock = slots.local_starts[at].slice(11);
        if (clock.endsWith(":00") && Number(clock.slice(0, 2)) % 3 === 0) hours.push([at, clock]);
      }
      const every = Math.ceil(hours.length / (most * 1.5));
      return hours.filter((_, n) => n % every === 0);
    }
    const every = Math.ceil(days.length / most);
    return days.filter((_, n) => n % every === 0).map((day) => [day.first, dayName(day.day)]);
  }

  function look(extra) {
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: "zoom",
      font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 13 },
      hoverlabel: { bgcolor: colour("--soft"), font: { color: colour("--ink") } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--faint"), activecolor: colour("--ink") },
      ...extra,
    };
  }

  const axis = (extra) => ({
    gridcolor: colour("--line"), linecolor: colour("--line"), zerolinecolor: colour("--line"), automargin: true, ...extra,
  });

  function panel(method, at, slots, size) {
    const x = slots.counts.map((_, n) => n);
    const on = { xaxis: `x${at ? at + 1 : ""}`, yaxis: `y${at ? at + 1 : ""}`, x, customdata: slots.local_starts };
    const quiet = { mode: "lines", line: { width: 0 }, hoverinfo: "skip", legendgroup: "interval" };
    return [
      { ...on, ...quiet, y: method.forecasts.lower, showlegend: false },
      { ...on, ...quiet, y: method.forecasts.upper, fill: "tonexty", fillcolor: colour("--interval"),
        name: `${Math.round(100 * report.options.level)} % interval`, showlegend: at === 0 },
      { ...on, y: slots.counts, mode: "lines", line: { color: colour("--count"), width: 1.4 }, name: "count",
        legendgroup: "count", showlegend: at === 0, hovertemplate: "%{customdata}<br>count %{y}<extra></extra>" },
      { ...on, y: method.forecasts.expected, mode: "markers", name: "forecast", legendgroup: "forecast",
        marker: { symbol: "star", size, color: colour("--forecast") }, showlegend: at === 0,
        text: method.forecasts.lower.map((low, n) => `${rounded(low)} to ${rounded(method.forecasts.upper[n])}`),
        hovertemplate: `%{customdata}<br>${method.method} %{y}<br>interval %{text}<extra></extra>` },
    ];
  }

  function drawFigure4() {
    const { methods, test_slots: slots, link_id: name, zone } = link();
    const box = byId("figure4");
    const wide = box.clientWidth;
    const columns = wide >= 1000 ? 4 : wide >= 560 ? 2 : 1;
    const rows = Math.ceil(methods.length / columns);
    const days = daysOf(slots);
    const chosen = days.find((day) => day.day === byId("day").value);
    const labels = ticks(slots, days, chosen, wide / columns);
    const range = chosen ? [chosen.first, chosen.last] : [0, slots.counts.length - 1];
    const highest = largest([slots.counts, ...methods.map((method) => method.forecasts.upper)].map(largest));
    const gapX = columns > 1 ? 0.03 : 0;
    const gapY = rows > 1 ? 0.11 - 0.01 * rows : 0;
    const layout = look({
      height: 90 + rows * (rows === 1 ? 330 : 260), margin: { l: 46, r: 10, t: columns > 1 ? 62 : 86, b: 40 },
      legend: { orientation: "h", x: 0, y: 1, yref: "container", yanchor: "top" }, hovermode: "closest", annotations: [],
    });
    methods.forEach((method, at) => {
      const [row, column] = [Math.floor(at / columns), at % columns];
      const [spanX, spanY] = [(1 - gapX * (columns - 1)) / columns, (1 - gapY * (rows - 1)) / rows];
      const [left, bottom] = [column * (spanX + gapX), 1 - row * (spanY + gapY) - spanY];
      const tail = at ? at + 1 : "";
      layout[`xaxis${tail}`] = axis({
        domain: [left, left + spanX], anchor: `y${tail}`, range, tickvals: labels.map((label) => label[0]),
        ticktext: labels.map((label) => label[1]), zeroline: false, ...(at ? { matches: "x" } : {}),
      });
      layout[`yaxis${tail}`] = axis({
        domain: [bottom, bottom + spanY], anchor: `x${tail}`, range: [0, 1.05 * highest], showticklabels: column === 0,
        ...(at ? { matches: "y" } : {}),
      });
      layout.annotations.push({
        text: `<b>${method.method}</b>, test RMSE ${method.test.rmse === null ? "n/a" : method.test.rmse.toFixed(2)}`,
        x: left, xref: "paper", xanchor: "left", y: bottom + spanY, yref: "paper", yanchor: "bottom", showarrow: false,
      });
    });
    const size = Math.min(9, Math.max(3.5, (2.5 * wide) / columns / (range[1] - range[0] + 1)));
    box.setAttribute("aria-label", `Figure 4 for link ${name}: counts and forecasts of all methods, ${zone} time`);
    Plotly.react(box, methods.flatMap((method, at) => panel(method, at, slots, size)), layout, config);
  }

  function drawMetric() {
    const method = link().methods[Number(byId("metric-method").value)];
    const { lag_weights: weights, eigenvalues } = method.metric;
    const lags = report.options.lags;
    const box = byId("metric");
    const beside = box.clientWidth >= 700;
    const bars = { type: "bar", marker: { color: colour("--bar") }, showlegend: false };
    const title = (text) => ({ text, font: { size: 13 } });
    const layout = look({
      height: beside ? 330 : 560, margin: { l: 60, r: 10, t: 16, b: 46 },
      xaxis: axis({ domain: beside ? [0, 0.56] : [0, 1], title: title("lag, slots before") }),
      yaxis: axis({ domain: beside ? [0, 1] : [0.58, 1], rangemode: "tozero", title: title("weight") }),
      xaxis2: axis({ domain: beside ? [0.66, 1] : [0, 1], anchor: "y2", title: title("number, largest first") }),
      yaxis2: axis({ domain: beside ? [0, 1] : [0, 0.4], anchor: "x2", rangemode: "tozero", title: title("eigenvalue") }),
    });
    const traces = [
      { ...bars, x: lags, y: weights, hovertemplate: "lag %{x}: %{y}<extra></extra>" },
      { ...bars, x: eigenvalues.map((_, n) => n + 1), y: eigenvalues, xaxis: "x2", yaxis: "y2",
        hovertemplate: "eigenvalue %{x}: %{y}<extra></extra>" },
    ];
    const even = Math.max(...weights) - Math.min(...weights) < 1e-9;
    const heaviest = lags.map((_, n) => n).sort((a, b) => weights[b] - weights[a]).slice(0, 3);
    const which = even
      ? "all lags weigh the same"
      : `the lags that weigh most are ${heaviest.map((n) => `${lags[n]} (${rounded(weights[n])})`).join(", ")}`;
    const summary = `${method.method} on link ${link().link_id}: rank ${method.rank} of ${lags.length}; ${which}.`;
    byId("metric-words").textContent = summary;
    box.setAttribute("aria-label", `The learnt metric. ${summary}`);
    Plotly.react(box, traces, layout, config);
  }

  function chooseLink() {
    const { link_id: name, zone, test_slots: slots, train_from: from, train_to: to, test_from: first, test_to: last } = link();
    const days = daysOf(slots);
    byId("day").replaceChildren(
      new Option("all test days", ""), ...days.map((day) => new Option(dayName(day.day), day.day)),
    );
    byId("link-days").textContent =
      `Link ${name}: learnt from ${from} to ${to}, tested from ${first} to ${last}, local time of ${zone}.`;
    draw();
  }

  function draw() {
    drawFigure4();
    drawMetric();
  }

  byId("link").addEventListener("change", chooseLink);
  byId("day").addEventListener("change", drawFigure4);
  byId("metric-method").addEventListener("change", drawMetric);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  let width = 0;
  new ResizeObserver(() => {
    const now = byId("figure4").clientWidth;
    if (now !== width && width) requestAnimationFrame(draw);
    width = now;
  }).observe(byId("figure4"));
  chooseLink();
})();
