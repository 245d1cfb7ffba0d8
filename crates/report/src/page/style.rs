//! Style sheet of the HTML reports. The colors are distinct with any color vision.

/// The style sheet.
pub(crate) const CSS: &str = "
:root{--paper:#fff;--ink:#1d2430;--soft:#5d6778;--rule:#e3e7ee;--card:#f5f7fa;--main:#0072b2;
--second:#d55e00;--third:#009e73;--steep:#f7e3d6;--useful:#dcefe7;--flat:#e9ecf2;--heat:#0072b2}
@media (prefers-color-scheme:dark){:root{--paper:#12161d;--ink:#e6eaf1;--soft:#9aa5b5;
--rule:#2a313c;--card:#1a2029;--main:#56b4e9;--second:#f0914c;--third:#3fc79c;--steep:#3a2a20;
--useful:#17342b;--flat:#232a35;--heat:#56b4e9}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif}
main{max-width:920px;margin:0 auto;padding:32px 20px 64px}
h1{font-size:28px;line-height:1.2;margin:0 0 8px;overflow-wrap:anywhere}
h2{font-size:20px;margin:40px 0 12px;padding-top:20px;border-top:1px solid var(--rule)}
.kind{margin:0;color:var(--main);font-weight:600;letter-spacing:.04em}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(180px,1fr));gap:12px;
margin:20px 0}
.card{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:12px 16px}
.card h3{margin:0;font-size:13px;font-weight:600;color:var(--soft)}
.card p{margin:2px 0;font-size:26px;font-weight:650;font-variant-numeric:tabular-nums}
.card small,figcaption{color:var(--soft);font-size:14px}
pre{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:10px 14px;
overflow-x:auto;font-size:13.5px}
figure{margin:16px 0 24px}
figcaption{margin-top:4px}
svg{display:block;width:100%;height:auto;font:13px system-ui,sans-serif}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:15px}
th,td{text-align:left;padding:6px 10px;border-bottom:1px solid var(--rule)}
th{color:var(--soft);font-weight:600;font-size:13px}
.number{text-align:right}
.regions li{margin:6px 0}
.grid{stroke:var(--rule);stroke-width:1}
.mark{fill:var(--soft)}
.axis{fill:var(--soft);font-size:14px}
.label{fill:var(--ink);font-weight:600;paint-order:stroke;stroke:var(--paper);stroke-width:4px;
stroke-linejoin:round}
.steep{fill:var(--steep)}.useful{fill:var(--useful)}.flat{fill:var(--flat)}
.region{fill:var(--soft);font-weight:600}
.best{fill:none;stroke:var(--main);stroke-width:2.5;stroke-linejoin:round}
.other{fill:none;stroke:var(--second);stroke-width:1.5;stroke-dasharray:2 3}
.band{fill:var(--main);opacity:.2}
.ceiling{stroke:var(--soft);stroke-width:1.5;stroke-dasharray:6 5}
.chosen{stroke:var(--second);stroke-width:2}
.beside{stroke:var(--second);stroke-width:1;stroke-dasharray:3 4}
.point{fill:var(--second)}
.bound{fill:var(--third)}
.bar{fill:var(--main);opacity:.85}
.over{fill:var(--second)}
.range{stroke:var(--rule);stroke-width:6;stroke-linecap:round}
.error{stroke:var(--soft);stroke-width:1.5}
.half{fill:var(--paper);stroke:var(--main);stroke-width:2}
.twice{fill:var(--main);opacity:.45}
.here{fill:var(--main)}
.soft{fill:var(--main);opacity:.3}
.trial{fill:var(--main);opacity:.55}
.line{fill:none;stroke-width:2.5;stroke-linejoin:round}
.c0{stroke:var(--main)}.c1{stroke:var(--second)}.c2{stroke:var(--third)}
.c3{stroke:#cc79a7}.c4{stroke:#e69f00}.c5{stroke:var(--soft)}
.cell{fill:var(--ink)}.over-dark{fill:var(--paper);font-weight:600}
.doubts{border-left:4px solid var(--second);padding-left:16px}
.doubts h2{border:0;padding:0;margin-top:24px}
.edge{stroke:var(--soft);stroke-width:1}
.h1{fill:var(--heat);opacity:.12}.h2{fill:var(--heat);opacity:.25}.h3{fill:var(--heat);opacity:.4}
.h4{fill:var(--heat);opacity:.55}.h5{fill:var(--heat);opacity:.7}.h6{fill:var(--heat);opacity:.85}
.h7{fill:var(--heat)}
@media print{:root{--paper:#fff;--ink:#000;--soft:#444;--rule:#ccc;--card:#fff;--main:#0072b2;
--second:#d55e00;--third:#009e73;--steep:#f7e3d6;--useful:#dcefe7;--flat:#e9ecf2;--heat:#0072b2}
main{max-width:none;padding:0}figure,table,.cards{break-inside:avoid}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
";
