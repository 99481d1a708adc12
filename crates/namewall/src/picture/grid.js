// The grid: only the cells in sight are elements.
const $=id=>document.getElementById(id),grid=$('grid'),sizer=$('sizer'),body=$('body'),rowhead=$('rowhead'),colhead=$('colhead');
let rows=[],cols=[],now=null,only='';
const CELL=parseInt(getComputedStyle(document.documentElement).getPropertyValue('--cell'),10);
const el=(tag,cls,text)=>{const e=document.createElement(tag);if(cls)e.className=cls;if(text!==undefined)e.textContent=text;return e;};
const itemLabel=i=>i.space?(i.opened?'▾ ':'▸ ')+i.space.name:short(i.first);
const itemName=i=>i.space?(i.space===NAMES?'names':'namespace '+i.space.name):label(i.first);
const itemAbout=i=>i.space?i.count+(i.space===NAMES?' names':i.count===1?' workload':' workloads'):about(i.first);
SPACES.forEach((s,i)=>{const o=el('option','',s.name);o.value=i;$('space').append(o);});
$('own').hidden=!D.cells.some(c=>c[2]);

function layout(){const state={text:$('q').value,space:$('space').value,side:$('side').value,only:$('only').value};
 only=state.only;const shown=filtered(state);rows=axis('from',shown.rows);cols=axis('to',shown.cols);
 const W=rowhead.offsetWidth,H=colhead.offsetHeight;
 sizer.style.width=W+cols.length*CELL+12+'px';sizer.style.height=H+rows.length*CELL+12+'px';rowhead.style.height=rows.length*CELL+'px';
 grid.setAttribute('aria-rowcount',rows.length);grid.setAttribute('aria-colcount',cols.length);
 sizer.hidden=!rows.length||!cols.length;$('empty').hidden=!sizer.hidden;
 const n=(k,word)=>k.toLocaleString('en')+' '+word+(k===1?'':'s');
 $('count').textContent=n(R,'workload')+' in '+n(SPACES.length,'namespace')+(D.names.length?', '+n(D.names.length,'name'):'')+'; shown: '+n(rows.length,'row')+', '+n(cols.length,'column');
 if(now&&(now.r>=rows.length||now.c>=cols.length))now=null;draw();}

function draw(){const W=rowhead.offsetWidth,H=colhead.offsetHeight;
 const r0=Math.max(0,Math.floor(grid.scrollTop/CELL)-2),r1=Math.min(rows.length,Math.ceil((grid.scrollTop+grid.clientHeight-H)/CELL)+2);
 const c0=Math.max(0,Math.floor(grid.scrollLeft/CELL)-2),c1=Math.min(cols.length,Math.ceil((grid.scrollLeft+grid.clientWidth-W)/CELL)+2);
 const rh=[],ch=[],cells=[];
 for(let c=c0;c<c1;c++){const i=cols[c],e=el('div','ch'+(i.space?' sp':'')+(now&&now.c===c?' now':''),itemLabel(i));e.style.left=W+c*CELL+'px';e.title=itemName(i)+': '+itemAbout(i);e.dataset.c=c;ch.push(e);}
 for(let r=r0;r<r1;r++){const i=rows[r],e=el('div','rh'+(i.space?' sp':'')+(now&&now.r===r?' now':''),itemLabel(i));e.append(el('small','',i.space?i.count:i.first<R&&D.rows[i.first][2]>1?'×'+D.rows[i.first][2]:''));e.style.top=r*CELL+'px';e.title=itemName(i)+': '+itemAbout(i);e.dataset.r=r;rh.push(e);
  for(let c=c0;c<c1;c++){const cell=between(i,cols[c]),d=el('div','c '+cell.kind,sign(cell));d.style.transform='translate('+c*CELL+'px,'+r*CELL+'px)';d.dataset.r=r;d.dataset.c=c;d.setAttribute('role','gridcell');
   const said=cell.kind==='depends'?cell.depends:cell.open;if((cell.kind==='some'||cell.kind==='depends')&&said<cell.total)d.style.backgroundColor='color-mix(in srgb,var(--'+cell.kind+') '+Math.round(35+65*said/cell.total)+'%,var(--none))';
   if(only&&only!=='differ'&&!matches(cell))d.classList.add('dim');
   if(now&&now.r===r&&now.c===c){d.classList.add('now');d.id='active';d.setAttribute('aria-label',sentence(i,cols[c],cell));}
   cells.push(d);}}
 rowhead.replaceChildren(...rh);colhead.replaceChildren($('corner')||corner,...ch);body.replaceChildren(...cells);
 now?grid.setAttribute('aria-activedescendant','active'):grid.removeAttribute('aria-activedescendant');}
const corner=$('corner');
const matches=cell=>cell.parts.some(([c])=>only==='open'?isOpen(CLASS[c]):only==='closed'?CLASS[c]==='none':CLASS[c]==='depends');
const sentence=(r,c,cell)=>itemName(r)+' to '+itemName(c)+': '+(cell.parts.length===1?D.cells[cell.parts[0][0]][1]:cell.parts.length?cell.open+' of '+cell.total+' pairs open':'nothing to say');

function select(r,c,scroll){now={r:Math.max(0,Math.min(rows.length-1,r)),c:Math.max(0,Math.min(cols.length-1,c))};
 if(scroll){const W=rowhead.offsetWidth,H=colhead.offsetHeight,x=now.c*CELL,y=now.r*CELL;
  if(y<grid.scrollTop)grid.scrollTop=y;else if(y+CELL>grid.scrollTop+grid.clientHeight-H)grid.scrollTop=y+CELL-grid.clientHeight+H;
  if(x<grid.scrollLeft)grid.scrollLeft=x;else if(x+CELL>grid.scrollLeft+grid.clientWidth-W)grid.scrollLeft=x+CELL-grid.clientWidth+W;}
 draw();detail();}
const MANY=40;
function list(texts){const ul=el('ul');texts.slice(0,MANY).forEach(t=>ul.append(el('li','',t)));if(texts.length>MANY)ul.append(el('li','hint','and '+(texts.length-MANY)+' more'));return ul;}
function detail(){if(!now)return;const row=rows[now.r],col=cols[now.c],cell=between(row,col),box=[];
 box.push(el('h2','',itemName(row)),el('p','hint',itemAbout(row)),el('p','','may open to'),el('h2','',itemName(col)),el('p','hint',itemAbout(col)));
 if(cell.kind==='moot')box.push(el('p','hint',row.first===col.first?'A pod reaches itself.':'Nothing to say here.'));
 for(const[id,k]of cell.parts){const[kind,text,own,more]=D.cells[id],p=el('p');p.append(el('b',kind,text));if(cell.total>1)p.append(' '+k+' of '+cell.total+' pairs');box.push(p);if(more.length)box.push(list(more));
  if(cell.total>1&&kind!=='none'){const found=[];pairs(row,col,id,found);box.push(list(found));}}
 if(!row.space&&row.first<=OUT)box.push(...opened(row));
 $('detail').replaceChildren(...box);}
function pairs(row,col,id,found){for(let r=row.first;r<row.first+row.count&&found.length<=MANY;r++){const{cell,end}=line(r);let at=col.first;for(let i=firstRun(end,at);at<col.first+col.count;i++){const to=Math.min(end[i],col.first+col.count);if(cell[i]===id)for(let k=at;k<to&&found.length<=MANY;k++)found.push(label(r)+' → '+label(k));at=to;}}}
// All that a row opens, by what is open.
function opened(row){const{cell,end}=line(row.first),by=new Map();let at=0;
 for(let i=0;i<cell.length;i++){if(CLASS[cell[i]]!=='none'&&!MOOT.has(cell[i])){if(!by.has(cell[i]))by.set(cell[i],[]);for(let k=at;k<end[i];k++)by.get(cell[i]).push(label(k));}at=end[i];}
 const box=[el('h2','','All that '+label(row.first)+' may open')];if(!by.size)box.push(el('p','','nothing'));
 for(const[id,names]of by){const p=el('p');p.append(el('b',CLASS[id],D.cells[id][1]),' to '+names.length);box.push(p,list(names));}return box;}
function toggle(side,item){const s=item.space||(item.first<R?SPACES[spaceOf[item.first]]:item.first>OUT?NAMES:null);if(!s)return;const set=openOf[side];set.has(s)?set.delete(s):set.add(s);layout();
 const at=(side==='from'?rows:cols).findIndex(i=>i.space===s);if(now&&at>=0){side==='from'?now.r=at:now.c=at;draw();}}

let asked=0;grid.addEventListener('scroll',()=>{if(!asked)asked=requestAnimationFrame(()=>{asked=0;draw();});},{passive:true});
addEventListener('resize',layout);
for(const id of['q','space','side','only'])$(id).addEventListener('input',()=>{grid.scrollTo(0,0);layout();});
$('expand').onclick=()=>{for(const side of['from','to']){SPACES.forEach(s=>openOf[side].add(s));openOf.to.add(NAMES);}layout();};
$('collapse').onclick=()=>{openOf.from.clear();openOf.to.clear();grid.scrollTo(0,0);layout();};
grid.addEventListener('click',e=>{const t=e.target.closest('[data-r],[data-c]');if(!t)return;const r=t.dataset.r,c=t.dataset.c;
 if(r!==undefined&&c!==undefined)select(+r,+c);
 else if(r!==undefined)rows[r].space?toggle('from',rows[r]):select(+r,now?now.c:0);
 else cols[c].space?toggle('to',cols[c]):select(now?now.r:0,+c);});
grid.addEventListener('keydown',e=>{const page=Math.max(1,Math.floor((grid.clientHeight-colhead.offsetHeight)/CELL)-1),at=now||{r:0,c:0};
 const step={ArrowUp:[-1,0],ArrowDown:[1,0],ArrowLeft:[0,-1],ArrowRight:[0,1],PageUp:[-page,0],PageDown:[page,0]}[e.key];
 if(!rows.length||!cols.length)return;
 if(step){e.preventDefault();now?select(at.r+step[0],at.c+step[1],true):select(0,0,true);}
 else if(e.key==='Home'||e.key==='End'){e.preventDefault();const end=e.key==='End';select(e.ctrlKey?(end?rows.length-1:0):at.r,end?cols.length-1:0,true);}
 else if(e.key==='Enter'||e.key===' '){e.preventDefault();e.shiftKey?toggle('to',cols[at.c]):toggle('from',rows[at.r]);}});
addEventListener('keydown',e=>{if(e.key==='/'&&!/INPUT|SELECT/.test(document.activeElement.tagName)){e.preventDefault();$('q').focus();}
 else if(e.key==='Escape'){$('q').value='';layout();grid.focus();}});
layout();
