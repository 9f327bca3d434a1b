"""How the landing page looks. Colours that colour-blind people can tell apart (Okabe and Ito), and never colour alone."""

CSS = """
:root{color-scheme:light dark;--text:#1a1a1a;--back:#fff;--soft:#5a5a5a;--line:#d5d5d5;--card:#f6f7f9;
--alert:#b34700;--pending:#8a5a00;--unknown:#5a5a5a;--fine:#00664b;--blue:#0072b2;--band:#9ccbe8}
@media(prefers-color-scheme:dark){:root{--text:#ececec;--back:#16181c;--soft:#b0b0b0;--line:#3a3d44;--card:#1f2228;
--alert:#ff9a52;--pending:#f0c04a;--unknown:#b8b8b8;--fine:#4fd1a5;--blue:#7cc4f0;--band:#27567a}}
body{font:16px/1.45 system-ui,sans-serif;color:var(--text);background:var(--back);max-width:76rem;margin:1.5rem auto;
padding:0 1rem}
h1{margin:0}h2{margin:0 0 .25rem;overflow-wrap:anywhere}a{color:var(--blue)}header p,section>p,footer{color:var(--soft)}
section{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:1rem;margin:1rem 0}
section>p{margin:.25rem 0 .75rem}.problems{border:2px solid var(--alert)}.problems h2{color:var(--alert)}
.overview{list-style:none;display:flex;flex-wrap:wrap;gap:.75rem;padding:0}
.overview li{border:1px solid;border-radius:.5rem;padding:.4rem 1rem}.overview b{font-size:1.4rem}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{padding:.5rem .75rem;text-align:left;vertical-align:top;border-top:1px solid var(--line);
font-variant-numeric:tabular-nums}
thead th{border:0;color:var(--soft);font-weight:normal;white-space:nowrap}
tbody th{overflow-wrap:anywhere;min-width:7rem;border-left:.35rem solid transparent}
td:nth-child(2){min-width:14rem}td:nth-child(3){min-width:264px}td:nth-child(6){white-space:nowrap}.told{margin:0 0 .4rem}small,.none{color:var(--soft)}
tr.alert th{border-left-color:var(--alert)}tr.pending th{border-left-color:var(--pending)}
tr.unknown th{border-left-color:var(--unknown)}
.alert .mood,li.alert{color:var(--alert)}.pending .mood,li.pending{color:var(--pending)}
.unknown .mood,.unwatched .mood,li.unknown,li.unwatched{color:var(--unknown)}.fine .mood,li.fine{color:var(--fine)}
svg{vertical-align:middle;max-width:100%}svg text{font-size:10px;fill:var(--soft)}.axis{stroke:var(--line);stroke-width:2}
.interval{fill:var(--band)}.value{fill:var(--blue)}
.reference{stroke:var(--text);stroke-width:1.5;stroke-dasharray:3 2}
.threshold{stroke:var(--alert);stroke-width:2}.flag{fill:var(--alert)}.legend{color:var(--soft)}.legend svg{margin-left:.5rem}
@media(max-width:60rem){thead{display:none}tbody tr,tbody th,tbody td{display:block;border-top:0}
tbody tr{border-top:1px solid var(--line);padding:.5rem 0}tbody th,tbody td{padding:.15rem .75rem}
td:nth-child(n+3)::before{content:attr(data-name) ": ";color:var(--soft)}}
"""
