// A plot of losses by step, as SVG text.

import * as echarts from "echarts";

const INK = "#59636e";
const GRID = "#d1d9e0";
// Apart in lightness as well, and later curves are thinner and dashed, because equal curves cover each other.
const LINES = [
  { color: "#9ec5fe", width: 7, type: "solid" },
  { color: "#0d6efd", width: 3.5, type: "solid" },
  { color: "#052c65", width: 1.2, type: [4, 4] },
];

/** Draws one curve for each `{ name, losses }`. */
export function lossPlot(curves, subtitle) {
  const chart = echarts.init(null, null, { renderer: "svg", ssr: true, width: 720, height: 400 });
  const text = { color: INK, fontFamily: "sans-serif" };
  const axis = {
    type: "value",
    nameLocation: "middle",
    nameTextStyle: text,
    axisLabel: text,
    axisLine: { show: true, lineStyle: { color: GRID } },
    splitLine: { lineStyle: { color: GRID } },
  };
  chart.setOption({
    animation: false,
    backgroundColor: "#ffffff",
    title: {
      text: "Training loss",
      subtext: subtitle,
      left: 12,
      top: 8,
      textStyle: { ...text, fontSize: 16 },
      subtextStyle: text,
    },
    legend: { right: 16, top: 16, textStyle: text },
    grid: { left: 64, right: 24, top: 72, bottom: 56 },
    xAxis: { ...axis, name: "step", nameGap: 32, min: 1, max: curves[0].losses.length },
    yAxis: { ...axis, name: "cross entropy per character", nameGap: 40, min: 0 },
    series: curves.map(({ name, losses }, at) => {
      const { color, width, type } = LINES[at % LINES.length];
      return {
        name,
        type: "line",
        showSymbol: false,
        data: losses.map((loss, step) => [step + 1, loss]),
        lineStyle: { color, width, type },
        itemStyle: { color },
      };
    }),
  });
  const svg = chart.renderToSVGString();
  chart.dispose();
  // A title for screen readers. The styles of hovering are left out: the picture is static.
  const titled = svg.replace(/^<svg [^>]*>/, (open) => `${open}\n<title>Training loss</title>`);
  return `${titled.replace(/<style[\s\S]*?<\/style>\n?/, "")}\n`;
}
