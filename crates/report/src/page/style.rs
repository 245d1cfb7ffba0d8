//! Style sheet of the HTML reports. The colors are distinct with any color vision (the palette of
//! Okabe and Ito), and each has one meaning: blue for hits and for a run with Larder, light blue
//! for read-ahead hits, orange for misses and worse results, gray for bypasses and for a run
//! without Larder, green for advice and better results.

/// The style sheet.
pub(crate) const CSS: &str = "
:root{--paper:#fff;--ink:#1d2430;--soft:#566072;--rule:#dfe4ec;--card:#f5f7fa;--hit:#0072b2;
--ahead:#3a92cc;--miss:#c44e00;--bypass:#7d8593;--good:#00805c;--steep:#f9e6d9;--useful:#dcefe7;
--flat:#e9ecf2;--plum:#a64d86;--sand:#b87400}
@media (prefers-color-scheme:dark){:root{--paper:#12161d;--ink:#e6eaf1;--soft:#a3adbc;
--rule:#2c3440;--card:#1a2029;--hit:#56a8e0;--ahead:#a5d8f8;--miss:#f0914c;--bypass:#8d96a5;
--good:#3fc79c;--steep:#3a2a20;--useful:#17342b;--flat:#232a35;--plum:#d88bbb;--sand:#e6a940}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif}
main{max-width:920px;margin:0 auto;padding:32px 20px 64px}
h1{font-size:30px;line-height:1.25;margin:0 0 8px;overflow-wrap:anywhere;text-wrap:balance}
h2{font-size:20px;margin:40px 0 12px;padding-top:20px;border-top:1px solid var(--rule)}
.kind{margin:0 0 4px;color:var(--hit);font-weight:600}
.subject{max-width:75ch;margin:8px 0;color:var(--soft);overflow-wrap:anywhere}
section p,section li,.doubts li{max-width:75ch;overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:12px;
margin:20px 0}
.card{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:12px 16px}
.card dt{font-size:14px;font-weight:600;color:var(--soft)}
.card dd{margin:0}
.card .value{margin:2px 0;font-size:22px;line-height:1.3;font-weight:650;
font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.unit{font-size:14px;font-weight:600;white-space:nowrap}
.card .note,figcaption{color:var(--soft);font-size:14px}
pre{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:10px 14px;
white-space:pre-wrap;overflow-wrap:anywhere;font-size:14px}
figure{margin:16px 0 12px}
figcaption{margin-top:4px;max-width:85ch}
svg{display:block;width:100%;min-width:600px;height:auto;font:13px system-ui,sans-serif}
svg.phone{display:none;min-width:0;max-width:480px}
.wide{overflow-x:auto;background:linear-gradient(to left,var(--paper) 50%,transparent) right/48px
102% no-repeat local,linear-gradient(to left,var(--bypass),transparent) right/14px 100% no-repeat}
:focus-visible{outline:2px solid var(--hit);outline-offset:2px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:15px}
th,td{text-align:left;padding:6px 10px;border-bottom:1px solid var(--rule);vertical-align:top}
th{color:var(--soft);font-weight:600;font-size:14px}
td{overflow-wrap:anywhere}
td:first-child{min-width:9em}
.number{text-align:right}
td.number{white-space:nowrap}
details{margin:8px 0 16px}
summary{cursor:pointer;color:var(--hit);font-size:15px}
.grid{stroke:var(--rule);stroke-width:1}
.mark,.region{fill:var(--soft)}
.axis{fill:var(--soft);font-size:14px}
.label{fill:var(--ink)}
.label,.region{font-weight:600}
.label,.mark,.region{paint-order:stroke;stroke:var(--paper);stroke-width:4px;
stroke-linejoin:round}
.steep{fill:var(--steep)}.useful{fill:var(--useful)}.flat{fill:var(--flat)}
.best{fill:none;stroke:var(--hit);stroke-width:2.5;stroke-linejoin:round}
.other{fill:none;stroke:var(--bypass);stroke-width:2;stroke-dasharray:2 3}
.band{fill:var(--hit);opacity:.2}
.ceiling{stroke:var(--soft);stroke-width:1.5;stroke-dasharray:6 5}
.chosen{stroke:var(--good);stroke-width:2}
.beside{stroke:var(--good);stroke-width:1;stroke-dasharray:3 4}
.point{fill:var(--good)}
.bound{fill:none;stroke:var(--ink);stroke-width:2}
.bar{fill:var(--hit);opacity:.85}
.over{fill:var(--miss)}
.range{stroke:var(--rule);stroke-width:6;stroke-linecap:round}
.error{stroke:var(--ink);stroke-width:1.5}
.half{fill:var(--paper);stroke:var(--hit);stroke-width:2}
.twice{fill:var(--hit);fill-opacity:.35;stroke:var(--hit);stroke-width:2}
.here{fill:var(--hit)}
.soft{fill:var(--hit);fill-opacity:.35;stroke:var(--hit)}
.without{fill:var(--bypass);fill-opacity:.45;stroke:var(--bypass)}
.unsure{fill:none;stroke:var(--bypass);stroke-dasharray:4 3}
circle.line{fill:var(--paper)}
.trial{fill:var(--ink);opacity:.6}
.better{fill:var(--good)}.worse{fill:var(--miss)}.same{fill:var(--bypass)}
.line{fill:none;stroke-width:2.5;stroke-linejoin:round}
.c0,.hit{stroke:var(--hit)}.c1,.miss{stroke:var(--miss)}.c2{stroke:var(--good)}
.c3{stroke:var(--plum)}.c4{stroke:var(--sand)}.c5,.bypass{stroke:var(--bypass)}
.ahead{stroke:var(--ahead);stroke-dasharray:7 4}
.keys{font-size:14px;margin:4px 0}
.entry{display:inline-block}
svg.area{display:inline;width:14px;height:14px;min-width:0;margin:0 6px 0 12px;vertical-align:-2px}
.free{fill:none;stroke:var(--rule)}
.key{display:inline-block;width:24px;height:0;border-top:3px solid;vertical-align:middle;
margin:0 6px 0 12px}
.key.hit,.key.c0{color:var(--hit)}.key.ahead{color:var(--ahead);border-top-style:dashed}
.key.miss,.key.c1{color:var(--miss)}.key.bypass,.key.c5{color:var(--bypass)}
.key.c2{color:var(--good)}.key.c3{color:var(--plum)}.key.c4{color:var(--sand)}
.key.best{color:var(--hit)}.key.other{color:var(--bypass);border-top-style:dotted}
.key.ceiling{color:var(--soft);border-top-style:dashed}
.key.half,.key.here,.key.twice,.key.point,.key.bound{width:12px;height:12px;border:2px solid;
border-radius:50%;color:var(--hit)}
.key.here,.key.point{background:currentColor}
.key.twice{background:color-mix(in srgb,var(--hit) 35%,transparent)}
.key.point,.key.chosen{color:var(--good)}.key.bound{color:var(--ink)}
.map td{text-align:right;font-size:14px}
.doubts{border-left:4px solid var(--miss);padding-left:16px;margin:24px 0}
.doubts h2{border:0;padding:0;margin:0}
.edge{stroke:var(--soft);stroke-width:1}
.h1{fill:var(--hit);opacity:.12}.h2{fill:var(--hit);opacity:.25}.h3{fill:var(--hit);opacity:.4}
.h4{fill:var(--hit);opacity:.55}.h5{fill:var(--hit);opacity:.7}.h6{fill:var(--hit);opacity:.85}
.h7{fill:var(--hit)}
.s1{background:color-mix(in srgb,var(--hit) 6%,transparent)}
.s2{background:color-mix(in srgb,var(--hit) 14%,transparent)}
.s3{background:color-mix(in srgb,var(--hit) 22%,transparent)}
.s4{background:color-mix(in srgb,var(--hit) 30%,transparent)}
.s5{background:color-mix(in srgb,var(--hit) 38%,transparent)}
.s6{background:color-mix(in srgb,var(--hit) 46%,transparent)}
.s7{background:color-mix(in srgb,var(--hit) 54%,transparent)}
@media (max-width:640px){svg.page{display:none}svg.phone{display:block}
.rows,.rows tbody,.rows tr,.rows td{display:block}.rows thead{display:none}
.rows tr{padding:8px 0;border-bottom:1px solid var(--rule)}
.rows td{display:flex;justify-content:space-between;gap:12px;padding:1px 0;border:0;
white-space:normal}
.rows td::before{content:attr(data-title);color:var(--soft);font-size:14px;text-align:left}
.rows td:first-child{font-weight:600}.rows td:first-child::before{content:none}}
@media (max-width:480px){main{padding:20px 14px 40px}h1{font-size:24px}
.cards{grid-template-columns:1fr 1fr}.card{padding:10px 12px}.card .value{font-size:20px}}
@media print{:root{--paper:#fff;--ink:#000;--soft:#444;--rule:#ccc;--card:#fff;--hit:#0072b2;
--ahead:#3a92cc;--miss:#c44e00;--bypass:#7d8593;--good:#00805c;--steep:#f9e6d9;--useful:#dcefe7;
--flat:#e9ecf2;--plum:#a64d86;--sand:#b87400}
main{max-width:none;padding:0}figure,table,.cards{break-inside:avoid}svg,svg.page{display:block;
min-width:0}svg.phone{display:none}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
";
