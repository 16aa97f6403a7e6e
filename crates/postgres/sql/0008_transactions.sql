-- The verdict `done` on one job, in the transaction that its handler wrote in. The fence is the job's row, as everywhere: if it is not
-- this delivery's any more, nothing of the transaction may be committed (CJ010). `marker` was set at the begin and goes with the
-- transaction that it was set in: without it the handler ended that one by itself (CJ011).
create function @.settle_in(w uuid, q int, c bigint, l smallint, s bigint, marker text, close_q int[], close_c bigint[]) returns void
language plpgsql as $$
begin
  if current_setting('celeriac.delivery', true) is distinct from marker then
    raise exception using errcode = 'CJ011', message = 'the handler ended the transaction of its worker by itself';
  end if;
  -- Should the commit that follows this statement be lost on the way, the job's row must not stay locked.
  perform set_config('idle_in_transaction_session_timeout', '5s', true);
  if not exists (select 1 from @.workers x where x.id = w and not x.dead) then
    raise exception using errcode = 'CJ010', message = 'a verdict is stale';
  end if;
  perform @.settle_done(w, array[q], array[c], '{}', '{}', '{}', '{}', array[1], array[l], array[s], close_q, close_c);
end $$;
